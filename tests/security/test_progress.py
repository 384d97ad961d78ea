# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Streams that go on without getting on: only content counts against --stall-seconds."""

import contextlib
import random
import socket
import struct
import threading
import time
from collections.abc import Iterator

import grpc
import pytest
from calls import MIB, cache, details, header, metric, wait_until_released
from health import SERVING
from http2 import (
    DATA,
    END_HEADERS,
    HEADERS,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    block,
    frame,
    frames_in,
)
from raw_calls import STREAMS, Method, call, error_of, field
from server_process import PATIENCE, Start

from kvcompress.v1.compression_service_pb2_grpc import CompressionServiceStub

EMPTY = field(2, b"")
COMPRESS_INT4 = field(1, field(1, b"int4"))  # options
BUDGET = 64 * MIB
FRAME = 16_384  # bytes that every server takes in one (RFC 9113, section 4.2)
MOST = 3 * FRAME  # bytes that a connection takes unasked, with those around them: 65,535


def trickle(message: bytes, pause: float, *first: bytes) -> Iterator[bytes]:
    """Messages every now and then, after the first."""
    yield from first
    while True:
        time.sleep(pause)
        yield message


def beginning(method: Method) -> list[bytes]:
    """Options, and what comes before content that counts for nothing."""
    if method.path.endswith("Decompress"):
        return [field(1, b"")]
    return [COMPRESS_INT4, field(2, header(1024 * MIB))]


@pytest.mark.parametrize("message", [EMPTY, field(2, b"x")], ids=["empty", "a byte"])
@pytest.mark.parametrize("method", STREAMS, ids=lambda each: each.path[-10:])
def test_others_are_served_after_stall_seconds(
    start: Start, method: Method, message: bytes
) -> None:
    """Twenty streams once held the budget for as long as a call may last."""
    server = start("--stall-seconds", "1", "--memory-budget-bytes", str(BUDGET))
    codes: list[grpc.StatusCode] = []

    def hold() -> None:
        with server.channel() as channel:
            messages = trickle(message, 0.3, *beginning(method))
            codes.append(error_of(channel, method, messages, 3 * PATIENCE).code())

    threads = [threading.Thread(target=hold) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # Those that were refused, and those that were cut off; a byte may also be refused.
    assert grpc.StatusCode.DEADLINE_EXCEEDED in codes or message != EMPTY, codes
    assert set(codes) <= {
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.INVALID_ARGUMENT,
    }
    with server.channel() as channel:
        *_, last = CompressionServiceStub(channel).Compress(cache(4 * MIB), timeout=PATIENCE)
    assert last.HasField("trailer")
    assert server.check() == SERVING


def test_content_that_trickles_is_a_stall(start: Start) -> None:
    """A hundred bytes a second are less than 4,096 in --stall-seconds, and 4,096 are not."""
    server = start("--stall-seconds", "1.5")

    def requests(size: int, seconds: float) -> Iterator[bytes]:
        yield COMPRESS_INT4
        yield field(2, header(MIB))
        end = time.monotonic() + seconds
        left = MIB
        while time.monotonic() < end:
            yield field(2, bytes(size))
            left -= size
            time.sleep(0.25)
        yield field(2, bytes(left))

    with server.channel() as channel:
        error = error_of(channel, STREAMS[0], requests(25, PATIENCE), 3 * PATIENCE)
        assert error.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        assert details(error)[0].reason == "STALLED"
        assert call(channel, STREAMS[0], requests(2048, 4), 3 * PATIENCE)


def test_messages_without_content_are_counted(start: Start) -> None:
    """However fast they come."""
    server = start()
    with server.channel() as channel:
        few = [COMPRESS_INT4, field(2, header(512)), *[EMPTY] * 1024, field(2, bytes(512))]
        assert call(channel, STREAMS[0], few, PATIENCE)
        for method in STREAMS:
            many = [*beginning(method), *[EMPTY] * 1025]
            error = error_of(channel, method, many, PATIENCE)
            assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
            info = details(error)[0]
            assert info.reason == "TOO_MANY_EMPTY_MESSAGES"
            assert info.metadata["limit"] == "1024"


def test_a_reader_that_takes_a_byte_at_a_time(start: Start) -> None:
    """Takes nothing, as far as the server is concerned, and is cut off."""
    server = start("--stall-seconds", "1", "--memory-budget-bytes", str(BUDGET))
    host, port = server.addresses[0].rsplit(":", 1)
    window_of_a_byte = frame(WINDOW_UPDATE, 0, 1, struct.pack(">I", 1))
    content = random.Random(0).randbytes(MOST)
    messages = [field(1, field(1, b"lossless")), field(2, header(len(content)) + content)]
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as connection:
        connection.sendall(PREFACE + frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 0)))
        heard = connection.recv(1 << 16)
        connection.sendall(frame(HEADERS, END_HEADERS, 1, block(STREAMS[0].path)))
        data = b"".join(b"\0" + struct.pack(">I", len(each)) + each for each in messages)
        for begin in range(0, len(data), FRAME):
            connection.sendall(frame(DATA, 0, 1, data[begin : begin + FRAME]))
        connection.settimeout(0.1)
        give_up = time.monotonic() + PATIENCE
        while RST_STREAM not in (each.kind for each in frames_in(heard)):
            assert time.monotonic() < give_up, heard
            connection.sendall(window_of_a_byte)
            with contextlib.suppress(TimeoutError):
                heard += connection.recv(1 << 16)
    wait_until_released(server)
    series = 'kvcompress_errors_total{code="DEADLINE_EXCEEDED",method="Compress"}'
    assert metric(server, series) == 1
    with server.channel() as channel:
        *_, last = CompressionServiceStub(channel).Compress(cache(4 * MIB), timeout=PATIENCE)
    assert last.HasField("trailer")
    assert server.check() == SERVING
