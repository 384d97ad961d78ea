# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Admission: what fits is served to its end, what does not is refused at once."""

import re
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from calls import MIB, OpenStream, cache, details, metric, trailers, wait_until_released
from process_memory import peak
from server_process import ServerProcess, Start

from kvcompress.v1.compression_service_pb2 import CompressRequest
from kvcompress.v1.compression_service_pb2_grpc import CompressionServiceStub
from kvcompress.v1.server_info_pb2 import GetServerInfoRequest, ServerLimits

# Four streams fit: each takes 4 MiB, its header, and a sample of a tensor.
BUDGET = 18 * MIB
REFUSED = 'kvcompress_requests_rejected_total{reason="budget"}'


def limits(server: ServerProcess) -> ServerLimits:
    """What GetServerInfo announces."""
    with server.channel() as channel:
        return CompressionServiceStub(channel).GetServerInfo(GetServerInfoRequest()).limits


def test_budget_is_announced(start: Start) -> None:
    """With what a stream takes of it, and in the metrics."""
    server = start("--memory-budget-bytes", str(64 * MIB), "--stall-seconds", "7")
    announced = limits(server)
    assert announced.memory_budget_bytes == 64 * MIB
    assert announced.min_stream_memory_bytes == 4 * MIB
    assert (announced.stall_seconds, announced.max_call_seconds) == (7, 3600)
    assert metric(server, "kvcompress_inflight_budget_bytes") == 64 * MIB
    assert limits(start()).memory_budget_bytes > 0


def test_refused_at_once_and_let_in_later(start: Start) -> None:
    """The error says when to come back; what a stream had is there for the next."""
    server = start("--memory-budget-bytes", str(BUDGET))
    with server.channel() as channel:
        running = [OpenStream(channel).begun() for _ in range(4)]
        assert metric(server, "kvcompress_inflight_bytes") >= 16 * MIB
        error = OpenStream(channel).error()
        assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        info, delay = details(error)
        assert (info.domain, info.reason) == ("kvcompress.v1", "BUDGET_EXHAUSTED")
        assert info.metadata["limit"] == str(BUDGET)
        assert delay is not None
        assert 0 < delay <= 15
        pushback = trailers(error)["grpc-retry-pushback-ms"]
        assert int(pushback) == pytest.approx(delay * 1000)
        assert metric(server, REFUSED) == 1

        assert running.pop().finish().HasField("trailer")
        running.append(OpenStream(channel).begun())
        for stream in running:
            assert stream.finish().HasField("trailer")
    assert metric(server, "kvcompress_inflight_bytes") == 0


def test_unary_calls_are_always_let_in(start: Start) -> None:
    """An operator can ask a server that is full."""
    server = start("--memory-budget-bytes", str(BUDGET))
    with server.channel() as channel:
        running = [OpenStream(channel).begun() for _ in range(4)]
        assert limits(server).memory_budget_bytes == BUDGET
        for stream in running:
            stream.finish()


def test_what_never_fits_is_not_asked_back(start: Start) -> None:
    """A tensor that a codec has to hold, and that no amount of waiting makes fit."""
    server = start("--memory-budget-bytes", str(BUDGET))
    with server.channel() as channel:
        error = OpenStream(channel, "ecsq", 16 * MIB).error()
        assert error.code() == grpc.StatusCode.OUT_OF_RANGE
        info, delay = details(error)
        assert (info.reason, delay) == ("EXCEEDS_BUDGET", None)
        # What would help: another codec, by name, or another limit, by flag and number.
        for part in ("ecsq takes 2 bytes", "lossless", "int4", "memory limit", "-budget-bytes"):
            assert part in (error.details() or "")
        assert OpenStream(channel, "int4", MIB).finish().HasField("trailer")


def test_what_does_not_fit_is_told_what_does(start: Start) -> None:
    """A budget of what the error says takes the call."""
    needed = 0
    for budget in (BUDGET, None):
        server = start("--memory-budget-bytes", str(budget or needed))
        with server.channel() as channel:
            stream = OpenStream(channel, "auto", 8 * MIB)
            if budget is None:
                for _ in range(7):
                    stream.send(CompressRequest(safetensors=bytes(MIB)))
                assert stream.finish().HasField("trailer")
                continue
            message = stream.error().details() or ""
            assert "ecsq 2" in message
            needed = int(re.findall(r"--memory-budget-bytes to (\d+)", message)[0])


def test_vanished_clients_leave_nothing(start: Start) -> None:
    """Their share goes to others."""
    server = start("--memory-budget-bytes", str(BUDGET))
    for _ in range(3):
        with server.channel() as channel:
            for stream in [OpenStream(channel).begun() for _ in range(4)]:
                stream.call.cancel()
                stream.send(None)
        wait_until_released(server)


def test_several_times_the_load_that_fits(start: Start) -> None:
    """32 clients where 7 fit: every cache is compressed, in bounded memory."""
    server = start("--memory-budget-bytes", str(32 * MIB))
    size, clients = 16 * MIB, 32
    before = peak(server.pid)

    def compress(_: int) -> int:
        """One client, which comes back after the retry delay; how often it was refused."""
        refused = 0
        with server.channel() as channel:
            while (error := attempt(channel)) is not None:
                assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED, error
                delay = details(error)[1]
                assert delay is not None
                refused += 1
                time.sleep(delay)
        return refused

    def attempt(channel: grpc.Channel) -> grpc.RpcError | None:
        """One call; None when it was served."""
        try:
            *_, last = CompressionServiceStub(channel).Compress(cache(size), timeout=100)
        except grpc.RpcError as error:
            return error
        assert last.trailer.original_size_bytes == size
        return None

    with ThreadPoolExecutor(clients) as pool:
        refusals = sum(pool.map(compress, range(clients)))
    assert refusals > 0
    assert metric(server, REFUSED) == refusals
    assert metric(server, "kvcompress_inflight_bytes") == 0
    grown = peak(server.pid) - before
    print(f"{refusals} refusals; {grown / MIB:.0f} MiB above the {before / MIB:.0f} at the start")
    # The budget, what gRPC may buffer on top of it, and what the allocator keeps.
    assert grown < (32 + 160 + 48) * MIB
