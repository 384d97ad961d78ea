# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Stopping: what finishes, what is cancelled, and how long it takes."""

import signal
import time
from pathlib import Path

import grpc
import pytest
from health import NOT_SERVING, SERVING, Watch
from server_process import PATIENCE, SERVICE, ServerProcess, Start
from streams import CompressStream

from kvcompress.v1.compression_service_pb2_grpc import CompressionServiceStub
from kvcompress.v1.server_info_pb2 import GetServerInfoRequest

# A wait that no test sits out.
LONG = "300"
CANCELLED = (grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE)


def begin_stop(server: ServerProcess) -> None:
    """Sends SIGTERM, and waits until the server has acted on it."""
    server.send(signal.SIGTERM)
    server.wait_log("SIGTERM")


def wait_until_refused(server: ServerProcess) -> None:
    """Waits until new calls fail with UNAVAILABLE.

    gRPC ends a call that comes in at the very moment of the shutdown with CANCELLED.
    """
    codes = set()
    give_up = time.monotonic() + PATIENCE
    while grpc.StatusCode.UNAVAILABLE not in codes:
        assert time.monotonic() < give_up
        try:
            server.check()
        except grpc.RpcError as error:
            codes.add(error.code())
    assert codes <= set(CANCELLED)


def test_idle_server_stops_at_once(start: Start) -> None:
    status, seconds = start().send_and_wait()
    assert status == 0
    assert seconds < PATIENCE


def test_open_watches_do_not_hold_up_the_stop(start: Start) -> None:
    server = start("--shutdown-grace-seconds", LONG)
    with server.channel() as channel:
        watches = [Watch(channel, service) for service in ("", SERVICE)]
        status, seconds = server.send_and_wait()
        for watch in watches:
            assert watch.first == SERVING
            assert watch.rest() == ([NOT_SERVING], grpc.StatusCode.UNAVAILABLE)
    assert status == 0
    assert seconds < PATIENCE


def test_watch_that_its_client_left_does_not_hold_up_the_stop(start: Start) -> None:
    server = start("--shutdown-grace-seconds", LONG)
    with server.channel() as channel:
        Watch(channel).call.cancel()
        Watch(channel)
    status, seconds = server.send_and_wait()
    assert status == 0
    assert seconds < PATIENCE


def test_idle_stream_is_cancelled_after_the_grace(start: Start) -> None:
    server = start("--shutdown-grace-seconds", "1")
    with server.channel() as channel:
        Watch(channel)
        stream = CompressStream(channel)
        status, seconds = server.send_and_wait()
        assert stream.code() in CANCELLED
    assert status == 0
    assert 1 <= seconds < 1 + PATIENCE
    assert "calls that still ran after the grace were cancelled" in server.messages


def test_running_stream_finishes_while_new_calls_are_refused(start: Start) -> None:
    server = start("--shutdown-grace-seconds", LONG)
    with server.channel() as channel:
        stream = CompressStream(channel)
        begin_stop(server)
        wait_until_refused(server)
        assert server.get("/healthz")[::2] == (503, "NOT_SERVING\n")
        stream.finish()
    assert stream.responses[-1].HasField("trailer")
    assert server.wait() == 0


def test_drain_delay_keeps_serving(start: Start) -> None:
    server = start("--drain-delay-seconds", LONG)
    with server.channel() as channel:
        watch = Watch(channel)
        begin_stop(server)
        assert server.check() == NOT_SERVING
        assert server.get("/healthz")[::2] == (503, "NOT_SERVING\n")
        info = CompressionServiceStub(channel).GetServerInfo(GetServerInfoRequest())
        assert info.api_version == "v1"
        assert server.send_and_wait()[0] == 0
        assert watch.rest() == ([NOT_SERVING], grpc.StatusCode.UNAVAILABLE)


def test_drain_delay_ends(start: Start) -> None:
    status, seconds = start("--drain-delay-seconds", "1").send_and_wait()
    assert status == 0
    assert 1 <= seconds < 1 + PATIENCE


def test_sigint_skips_the_drain_delay(start: Start) -> None:
    status, seconds = start("--drain-delay-seconds", LONG).send_and_wait(signal.SIGINT)
    assert status == 0
    assert seconds < PATIENCE


def test_second_signal_ends_the_drain_delay(start: Start) -> None:
    server = start("--drain-delay-seconds", LONG)
    begin_stop(server)
    status, seconds = server.send_and_wait()
    assert status == 0
    assert seconds < PATIENCE


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_second_signal_ends_the_grace(start: Start, number: signal.Signals) -> None:
    server = start("--shutdown-grace-seconds", LONG)
    with server.channel() as channel:
        stream = CompressStream(channel)
        begin_stop(server)
        wait_until_refused(server)
        status, seconds = server.send_and_wait(number)
        assert stream.code() in CANCELLED
    assert status == 0
    assert seconds < PATIENCE


def test_a_lost_address_does_not_shorten_the_drain(start: Start, tmp_path: Path) -> None:
    """Nor is the next signal missed: only signals count while calls have time to end."""
    path = tmp_path / "kv.sock"
    lost = ("--unreachable-exit-seconds", "1")
    server = start("--listen", f"unix:{path}", "--drain-delay-seconds", "8", *lost)
    server.send(signal.SIGTERM)
    server.wait_log("draining for 8s")
    path.unlink()
    begin = time.monotonic()
    server.wait_log("new connections are not served")
    assert server.wait() == 0
    assert time.monotonic() - begin > 6
