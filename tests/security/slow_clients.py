# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Clients of an HTTP port that hold connections open, in a process of their own.

    slow_clients.py HOST PORT COUNT SECONDS KIND...

Kinds: `silent` sends nothing; `half` sends half a request line; `trickle` sends a byte of its
head every second; `unread` sends a request for /metrics and never reads. Each is opened again as
soon as it is closed. Prints, as JSON, how many were opened.
"""

import contextlib
import errno
import itertools
import json
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

KINDS = ("silent", "half", "trickle", "unread")
BEGINNINGS = {
    "silent": b"",
    "half": b"GET /hea",
    "trickle": b"GET /metrics HTTP/1.1\r\nHost: a\r\nX: ",
    "unread": b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n",
}


def begin(address: tuple[str, int], kind: str) -> socket.socket | None:
    """A connection of that kind; None when it was refused or closed at once."""
    connection = socket.socket()
    if kind == "unread":
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    connection.settimeout(0.5)
    try:
        connection.connect(address)
        connection.sendall(BEGINNINGS[kind])
    except OSError:
        connection.close()
        return None
    connection.setblocking(False)
    return connection


def attack(address: tuple[str, int], count: int, seconds: float, kinds: Sequence[str]) -> int:
    """Keeps `count` connections open; how many were opened in all."""
    poller = select.poll()
    held: dict[int, tuple[socket.socket, str]] = {}
    missing = [kind for kind, _ in zip(itertools.cycle(kinds), range(count), strict=False)]
    opened = 0
    end = time.monotonic() + seconds
    next_byte = time.monotonic() + 1
    while time.monotonic() < end:
        # A few at a time, so that those that are closed are seen meanwhile.
        for kind in [missing.pop() for _ in range(min(50, len(missing)))]:
            connection = begin(address, kind)
            if connection is None:
                missing.append(kind)
                continue
            opened += 1
            held[connection.fileno()] = (connection, kind)
            reading = 0 if kind == "unread" else select.POLLIN
            poller.register(connection, reading | select.POLLRDHUP)
        for fd, _ in poller.poll(0 if missing else 20):
            poller.unregister(fd)
            connection, kind = held.pop(fd)
            connection.close()
            missing.append(kind)
        if time.monotonic() >= next_byte:
            next_byte += 1
            for connection, kind in held.values():
                if kind == "trickle":
                    with contextlib.suppress(OSError):
                        connection.send(b"x")
    for connection, _ in held.values():
        connection.close()
    return opened


@contextlib.contextmanager
def slow_clients(
    http: str, count: int, seconds: float, kinds: Sequence[str] = KINDS
) -> Iterator[subprocess.Popen[str]]:
    """Clients of `http`, a URL without a path, in another process until the block ends."""
    host, port = http.removeprefix("http://").rsplit(":", 1)
    command = [sys.executable, __file__, host, port, str(count), str(seconds), *kinds]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def ask(http: str, path: str, timeout: float) -> tuple[int, str]:
    """Status and body of a GET, all of it within `timeout`; OSError when there is no answer."""
    host, port = http.removeprefix("http://").rsplit(":", 1)
    end = time.monotonic() + timeout
    with socket.create_connection((host, int(port)), timeout=timeout) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        return read_answer(connection, end)


def read_answer(connection: socket.socket, end: float) -> tuple[int, str]:
    """Reads to the end of the connection, until `end` at the latest."""
    got = b""
    while True:
        connection.settimeout(max(0.001, end - time.monotonic()))
        more = connection.recv(65536)
        if not more:
            break
        got += more
    head, _, body = got.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    if f"Content-Length: {len(body)}" not in lines:
        raise OSError(errno.ECONNRESET, f"the answer is cut: {len(got)} bytes")
    return int(lines[0].split()[1]), body.decode()


def main() -> None:
    """Attacks as the arguments say."""
    host, port, count, seconds, *kinds = sys.argv[1:]
    opened = attack((host, int(port)), int(count), float(seconds), kinds)
    print(json.dumps({"opened": opened}))


if __name__ == "__main__":
    main()
