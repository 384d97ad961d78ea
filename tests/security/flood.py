# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Connections into which frames are poured for as long as a flood lasts."""

import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterator

from http2 import END_HEADERS, HEADERS, PREFACE, SETTINGS, frame, indexed
from server_process import ServerProcess

SECONDS = 2.0
AT_ONCE = 100


def many_streams(method: str, after: bytes = b"", flags: int = END_HEADERS) -> Iterator[bytes]:
    """Streams whose headers are six bytes, each with the frame `after`, which names none."""
    first, later = indexed(f"/kvcompress.v1.CompressionService/{method}")
    for begin in itertools.count(0, AT_ONCE):
        piece = b""
        for stream in range(2 * begin + 1, 2 * (begin + AT_ONCE), 2):
            piece += frame(HEADERS, flags, stream, first if stream == 1 else later)
            piece += after[:5] + stream.to_bytes(4, "big") + after[9:] if after else b""
        yield piece


class Flood:
    """Pours frames into connections, a new one for each that the server has ended."""

    def __init__(self, server: ServerProcess, frames: Callable[[], Iterator[bytes]]) -> None:
        """Begins."""
        host, port = server.addresses[0].rsplit(":", 1)
        self._address, self._frames = (host, int(port)), frames
        self._end = time.monotonic() + SECONDS
        self.sent = self.connections = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while time.monotonic() < self._end:
            self.connections += 1
            try:
                with socket.create_connection(
                    self._address, timeout=1, source_address=("127.0.0.2", 0)
                ) as connection:
                    connection.sendall(PREFACE + frame(SETTINGS, 0, 0, b""))
                    self._pour(connection)
            except OSError:
                continue

    def _pour(self, connection: socket.socket) -> None:
        for piece in self._frames():
            if time.monotonic() > self._end:
                return
            connection.sendall(piece)
            self.sent += len(piece)

    def lasts(self) -> bool:
        """Whether it goes on."""
        return self._thread.is_alive()

    def wait(self) -> None:
        """Waits for its end."""
        self._thread.join()
