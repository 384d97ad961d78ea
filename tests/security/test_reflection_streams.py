# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Thousands of open streams of reflection, each of which once held a thread."""

import contextlib
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
from health import SERVING, Watch
from http2 import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    block,
    frame,
    frames_in,
)
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


class Streams:
    """A connection with a hundred open streams, and what came on it."""

    def __init__(self, address: str, opening: bytes, stack: contextlib.ExitStack) -> None:
        """Connects, until `stack` ends, and sends `opening`."""
        host, port = address.rsplit(":", 1)
        self._socket = stack.enter_context(socket.create_connection((host, int(port)), timeout=1))
        self._socket.sendall(opening)
        self._data = b""

    def outcomes(self) -> Counter[str]:
        """How many streams were answered, and how many refused."""
        self._receive(lambda: len(self._answered() | self._ended()) == STREAMS_OF_ONE)
        answered = self._answered()
        refused = self._ended() - answered
        return Counter("answered" for _ in answered) + Counter("refused" for _ in refused)

    def wait_until_ended(self) -> None:
        """Waits until every stream has its end."""
        self._receive(lambda: len(self._ended()) == STREAMS_OF_ONE)

    def _receive(self, enough: Callable[[], bool]) -> None:
        give_up = time.monotonic() + PATIENCE
        while not enough():
            assert time.monotonic() < give_up, self._account()
            with contextlib.suppress(TimeoutError):
                data = self._socket.recv(1 << 16)
                assert data, f"the server closed the connection; {self._account()}"
                self._data += data

    def _answered(self) -> set[int]:
        return {each.stream for each in frames_in(self._data) if each.kind == DATA}

    def _ended(self) -> set[int]:
        return {
            each.stream
            for each in frames_in(self._data)
            if each.kind == HEADERS and each.flags & END_STREAM
        }

    def _account(self) -> str:
        answered, ended = self._answered(), self._ended()
        reset = {each.stream for each in frames_in(self._data) if each.kind == RST_STREAM}
        return (
            f"{len(answered)} streams answered, {len(ended)} ended; without an end "
            f"{sorted(answered - ended)}, of which reset {sorted(reset - ended)}"
        )


def test_two_thousand_open_streams(start: Start) -> None:
    """Take no thread and little memory; all are answered, and newer ones displace older ones."""
    server = start()

    def threads() -> int:
        return len(list(Path(f"/proc/{server.pid}/task").iterdir()))

    before, connections = threads(), []
    with contextlib.ExitStack() as stack:
        for index in range(CONNECTIONS):
            begin = opening(REFLECTION[index % 2].path)
            connections.append(Streams(server.addresses[0], begin, stack))
            assert connections[-1].outcomes() == {"answered": STREAMS_OF_ONE}
        for connection in connections[: -MOST_STREAMS // STREAMS_OF_ONE]:
            connection.wait_until_ended()
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
    total: Counter[str] = Counter()
    path = "/grpc.health.v1.Health/Watch"
    with contextlib.ExitStack() as stack:
        for _ in range(12):
            total += Streams(server.addresses[0], opening(path, b"", END_STREAM), stack).outcomes()
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
    with contextlib.ExitStack() as stack:
        streams = Streams(server.addresses[0], opening(REFLECTION[0].path), stack)
        assert streams.outcomes() == {"answered": STREAMS_OF_ONE}
        streams.wait_until_ended()


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
