# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Calls that are cut off: senders that stall, readers that stall, calls without end."""

import time
from collections.abc import Iterator

import grpc
import pytest
from calls import MIB, OpenStream, cache, details, metric, wait_until_released
from server_process import PATIENCE, Start

from kvcompress.v1.compression_service_pb2 import CompressOptions, CompressRequest, MeasureRequest
from kvcompress.v1.compression_service_pb2_grpc import CompressionServiceStub

TIMED_OUT = 'kvcompress_errors_total{code="DEADLINE_EXCEEDED",method="%s"}'


def test_stalled_sender(start: Start) -> None:
    """Is told why, and releases what it held."""
    server = start("--stall-seconds", "0.5")
    with server.channel() as channel:
        error = OpenStream(channel).begun().error()
    assert error.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    assert details(error)[0].reason == "STALLED"
    wait_until_released(server)
    assert metric(server, TIMED_OUT % "Compress") == 1


def test_stalled_measure(start: Start) -> None:
    """The same for a call with one answer."""
    server = start("--stall-seconds", "0.5")

    def requests() -> Iterator[MeasureRequest]:
        yield MeasureRequest(options=CompressOptions(codec="int4"))
        time.sleep(5)

    with server.channel() as channel, pytest.raises(grpc.RpcError) as caught:
        CompressionServiceStub(channel).Measure(requests(), timeout=PATIENCE)
    assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    assert details(caught.value)[0].reason == "STALLED"
    wait_until_released(server)


def test_stalled_reader(start: Start) -> None:
    """One that never takes an answer is cut off, and a patient one is served."""
    server = start("--stall-seconds", "1")
    with server.channel() as channel:
        stub = CompressionServiceStub(channel)
        stuck = stub.Compress(cache(64 * MIB), timeout=3 * PATIENCE)
        deadline = time.monotonic() + PATIENCE
        while metric(server, TIMED_OUT % "Compress") == 0:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        wait_until_released(server)
        *_, last = stub.Compress(cache(4 * MIB), timeout=PATIENCE)
        assert last.HasField("trailer")
        stuck.cancel()


def test_a_pause_that_is_short_enough(start: Start) -> None:
    """Costs nothing, however often it comes: only single waits count."""
    server = start("--stall-seconds", "2")
    with server.channel() as channel:
        stream = OpenStream(channel).begun()
        for _ in range(4):
            time.sleep(0.7)
            stream.send(CompressRequest(safetensors=bytes(MIB // 4)))
        stream.send(None)
        *_, last = stream.call
        assert last.HasField("trailer")


def test_longest_call(start: Start) -> None:
    """A call that keeps going is ended, whatever its own deadline."""
    server = start("--max-call-seconds", "1")
    with server.channel() as channel:
        stream = OpenStream(channel, size=1024 * MIB).begun()
        deadline = time.monotonic() + PATIENCE
        while stream.call.is_active() and time.monotonic() < deadline:
            stream.send(CompressRequest(safetensors=bytes(512)))
            time.sleep(0.05)
        error = stream.error()
    assert error.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    assert details(error)[0].reason == "CALL_TOO_LONG"
    wait_until_released(server)
