# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""A TCP proxy that does to a connection what a network does."""

import contextlib
import socket
import struct
import threading
import time
from dataclasses import dataclass, field

UP, DOWN = 0, 1  # from the client, and to it
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close with RST


@dataclass
class Faults:
    """What happens to every connection, by direction: (UP, DOWN).

    Attributes:
        cut: Bytes after which the connection is closed in both directions; None for never.
        stall: Bytes after which nothing more passes in this direction; None for never.
        reset: Whether a cut is a RST, as of a machine that is gone, or an orderly end.
        piece: Most bytes that are passed on at a time.
        pause: Seconds before each piece.
    """

    cut: tuple[int | None, int | None] = (None, None)
    stall: tuple[int | None, int | None] = (None, None)
    reset: bool = True
    piece: int = 1 << 16
    pause: float = 0


@dataclass
class Proxy:
    """Passes connections on to an address, with faults. To be used in a `with`.

    Attributes:
        target: HOST:PORT.
        faults: Of the connections to come.
        passed: Bytes that have passed, by direction, in all connections.
    """

    target: str
    faults: Faults = field(default_factory=Faults)
    passed: list[int] = field(default_factory=lambda: [0, 0])

    def __post_init__(self) -> None:
        """Listens."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._sockets: list[socket.socket] = []
        self._ended = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> "Proxy":
        """Returns the proxy."""
        return self

    def __exit__(self, *_: object) -> None:
        """Ends every connection."""
        self._ended.set()
        for each in [self._listener, *self._sockets]:
            close(each, reset=False)

    def _accept(self) -> None:
        host, port = self.target.rsplit(":", 1)
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    server = socket.create_connection((host, int(port)))
                except OSError:
                    close(client, reset=True)
                    continue
                self._sockets += [client, server]
                faults = self.faults
                for ends in ((client, server, UP), (server, client, DOWN)):
                    threading.Thread(target=self._pass, args=(*ends, faults), daemon=True).start()

    def _pass(
        self, source: socket.socket, sink: socket.socket, direction: int, faults: Faults
    ) -> None:
        cut, stall, done = faults.cut[direction], faults.stall[direction], 0
        try:
            while True:
                limits = [limit - done for limit in (cut, stall) if limit is not None]
                room = min([faults.piece, *limits])
                if stall == done:
                    self._ended.wait()
                    return
                data = source.recv(room) if room else b""
                if not data:
                    break
                time.sleep(faults.pause)
                sink.sendall(data)
                done += len(data)
                self.passed[direction] += len(data)
        except OSError:
            pass
        was_cut = cut is not None and done >= cut
        close(source, reset=faults.reset and was_cut)
        close(sink, reset=faults.reset and was_cut)


def close(connection: socket.socket, reset: bool) -> None:
    """Closes a connection that other threads may be using."""
    with contextlib.suppress(OSError):
        if reset:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        connection.shutdown(socket.SHUT_RDWR)
    with contextlib.suppress(OSError):
        connection.close()
