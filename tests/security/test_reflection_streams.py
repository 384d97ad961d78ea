# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Thousands of open streams of reflection, each of which once held a thread."""

import contextlib
import socket
import struct
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import grpc
from health import SERVING, Watch
from http2 import DATA, END_HEADERS, END_STREAM, HEADERS, PREFACE, SETTINGS, block, frame, frames_in
from process_memory import peak
from raw_calls import REFLECTION, call, field
from server_process import PATIENCE, Start

import kvcompress

SAMPLE = Path(__file__).parents[1] / "data" / "smollm2_kjv_96_bf16.safetensors"
MIB = 1 << 20
CONNECTIONS, STREAMS_OF_ONE = 20, 100
MOST_STREAMS, MOST_WATCHERS = 256, 1024
LIST_SERVICES = field(7, b"")


def opening(path: str, question: bytes = LIST_SERVICES, end: int = 0) -> bytes:
    """A connection with a hundred streams, each with one question, and an end or none."""
    message = b"\0" + struct.pack(">I", len(question)) + question
    return (
        PREFACE
        + frame(SETTINGS, 0, 0, b"")
        + b"".join(
            frame(HEADERS, END_HEADERS, stream, block(path)) + frame(DATA, end, stream, message)
            for stream in range(1, 2 * STREAMS_OF_ONE, 2)
        )
    )


def outcomes(connection: socket.socket) -> Counter[str]:
    """How many streams of a connection were answered, and how many refused."""
    data, give_up = b"", time.monotonic() + PATIENCE
    while time.monotonic() < give_up:
        ends: dict[int, str] = {}
        for kind, flags, stream, _ in frames_in(data):
            if kind == HEADERS and flags & END_STREAM:
                ends[stream] = "refused"
            elif kind == DATA:
                ends[stream] = "answered"
        if len(ends) == STREAMS_OF_ONE:
            return Counter(ends.values())
        with contextlib.suppress(TimeoutError):
            data += connection.recv(1 << 16)
    raise AssertionError("streams without an answer")


def wait_until_ended(connection: socket.socket) -> None:
    """Waits until every stream of a connection has its end."""
    data, give_up = b"", time.monotonic() + PATIENCE
    ended: set[int] = set()
    while len(ended) < STREAMS_OF_ONE:
        assert time.monotonic() < give_up
        with contextlib.suppress(TimeoutError):
            data += connection.recv(1 << 16)
        ended = {
            stream
            for kind, flags, stream, _ in frames_in(data)
            if kind == HEADERS and flags & END_STREAM
        }


def test_two_thousand_open_streams(start: Start) -> None:
    """Take no thread and little memory; all are answered, and newer ones displace older ones."""
    server = start()

    def threads() -> int:
        return len(list(Path(f"/proc/{server.pid}/task").iterdir()))

    before, host_and_port = threads(), server.addresses[0].rsplit(":", 1)
    address = (host_and_port[0], int(host_and_port[1]))
    connections = []
    with contextlib.ExitStack() as stack:
        for index in range(CONNECTIONS):
            connection = stack.enter_context(socket.create_connection(address, timeout=1))
            connections.append(connection)
            connection.sendall(opening(REFLECTION[index % 2].path))
            assert outcomes(connection) == {"answered": STREAMS_OF_ONE}
        for connection in connections[: -MOST_STREAMS // STREAMS_OF_ONE]:
            wait_until_ended(connection)
        print(f"{threads()} threads, {before} before; {peak(server.pid) / MIB:.0f} MiB")
        assert threads() <= before + 16
        assert peak(server.pid) < 150 * MIB
        with kvcompress.Client(server.addresses[0], timeout=PATIENCE) as client:
            assert client.compress(SAMPLE).artefact
        assert server.check() == SERVING
        with server.channel() as channel:
            assert call(channel, REFLECTION[0], [LIST_SERVICES], PATIENCE)


def test_streams_of_watch(start: Start) -> None:
    """As many as are allowed hear of the health, and Check goes on."""
    server = start()
    host, port = server.addresses[0].rsplit(":", 1)
    total: Counter[str] = Counter()
    path = "/grpc.health.v1.Health/Watch"
    with contextlib.ExitStack() as stack:
        for _ in range(12):
            connection = stack.enter_context(socket.create_connection((host, int(port)), timeout=1))
            connection.sendall(opening(path, b"", END_STREAM))
            total += outcomes(connection)
        assert total == {"answered": MOST_WATCHERS, "refused": 1200 - MOST_WATCHERS}
        assert server.check() == SERVING
    give_up = time.monotonic() + PATIENCE
    while True:
        with server.channel() as channel, contextlib.suppress(grpc.RpcError):
            assert Watch(channel).first == SERVING
            break
        assert time.monotonic() < give_up
    assert server.send_and_wait()[0] == 0


def test_streams_that_say_nothing_are_cut_off(start: Start) -> None:
    """So that nobody holds all of them."""
    server = start("--stall-seconds", "0.5")
    host, port = server.addresses[0].rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=1) as connection:
        connection.sendall(opening(REFLECTION[0].path))
        assert outcomes(connection) == {"answered": STREAMS_OF_ONE}
        wait_until_ended(connection)


def test_names_that_are_not_there_take_no_memory(start: Start) -> None:
    """Each of them once stayed for good: the pool of protobuf keeps what it did not find."""
    server = start()

    def questions(begin: int) -> Iterator[bytes]:
        for index in range(begin, begin + 10):
            yield field(4, (b"%d" % index) * (6000 // len(b"%d" % index)))

    with server.channel() as channel:
        for begin in range(0, 20_000, 10):
            answers = call(channel, REFLECTION[0], questions(begin), PATIENCE)
            assert len(answers) == 10
    assert peak(server.pid) < 100 * MIB
