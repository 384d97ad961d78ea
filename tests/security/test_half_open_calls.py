# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Calls that are opened and never say anything: they are bounded, and others are served.

They come no faster than gRPC gets to each of them; for floods see test_floods.py.
"""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import health
import pytest
from calls import metric
from health import SERVING
from http2 import END_HEADERS, HEADERS, PREFACE, SETTINGS, block, frame
from process_memory import peak
from process_threads import wait_until_idle
from server_process import PATIENCE, ServerProcess, Start, wait_until

import kvcompress

SAMPLE = Path(__file__).parents[1] / "data" / "smollm2_kjv_96_bf16.safetensors"
MIB = 1 << 20
COUNT = 10_000
SERVICE = "/kvcompress.v1.CompressionService/"
METHODS = [
    *(f"{SERVICE}{name}" for name in ("GetServerInfo", "SelfTest", "CompressFile", "Compress")),
    *("/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"),
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/no.such.Service/Method",
]


def opening(method: str, stream: int) -> bytes:
    """Headers of a call that goes on."""
    return frame(HEADERS, END_HEADERS, stream, block(method))


def swallow(connection: socket.socket) -> None:
    """Reads what comes, so that the server need not keep it."""
    with contextlib.suppress(OSError):
        while connection.recv(1 << 16):
            pass


@contextlib.contextmanager
def half_open(server: ServerProcess, method: str) -> Iterator[None]:
    """Many calls on one connection, none of which sends a message."""
    host, port = server.addresses[0].rsplit(":", 1)
    with socket.create_connection((host, int(port)), PATIENCE) as connection:
        reader = threading.Thread(target=swallow, args=(connection,))
        reader.start()
        connection.sendall(PREFACE + frame(SETTINGS, 0, 0, b""))
        # Fewer when the server hangs up, which is as good.
        with contextlib.suppress(OSError):
            for first in range(0, COUNT, 100):
                calls = range(first, first + 100)
                connection.sendall(b"".join(opening(method, 2 * call + 1) for call in calls))
                wait_until_idle(server.pid)
        yield
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        reader.join(PATIENCE)


@pytest.mark.parametrize("method", METHODS)
def test_calls_without_a_request(start: Start, method: str) -> None:
    """Gone before it is there, each once took 12 KiB until its connection ended."""
    server = start("--memory-budget-bytes", str(64 * MIB))
    before = peak(server.pid)
    with half_open(server, method):
        begin = time.monotonic()
        with server.channel() as channel:
            assert health.check(channel, "", PATIENCE) == SERVING
        print(f"{method}: health within {time.monotonic() - begin:.2f} s")
        with kvcompress.Client(server.addresses[0], timeout=PATIENCE) as client:
            assert client.server_info().version
    print(f"{(peak(server.pid) - before) / MIB:.0f} MiB more")
    assert peak(server.pid) - before < 100 * MIB
    # What the calls held is given back once the server has seen that they are gone.
    wait_until(lambda: metric(server, "kvcompress_inflight_bytes") == 0)
    with kvcompress.Client(server.addresses[0], timeout=PATIENCE) as client:
        assert client.measure(SAMPLE).tensor_count == 60
    assert server.check() == SERVING
    assert server.get("/healthz")[0] == 200
    assert server.send_and_wait()[0] == 0


def test_a_call_whose_request_does_not_come_is_ended(start: Start) -> None:
    """After ten seconds, or the time for a stall where that is less; it is counted meanwhile."""
    server = start("--stall-seconds", "2")
    started = 'kvcompress_requests_total{method="GetServerInfo"}'
    stalled = 'kvcompress_errors_total{code="DEADLINE_EXCEEDED",method="GetServerInfo"}'
    host, port = server.addresses[0].rsplit(":", 1)
    with socket.create_connection((host, int(port)), PATIENCE) as connection:
        connection.sendall(PREFACE + frame(SETTINGS, 0, 0, b""))
        connection.sendall(opening(f"{SERVICE}GetServerInfo", 1))
        wait_until(lambda: metric(server, started) == 1)
        assert metric(server, stalled) == 0
        received = b""
        while b"sent too little data" not in received:
            piece = connection.recv(4096)
            assert piece, "the connection ended"
            received += piece
    wait_until(lambda: metric(server, stalled) == 1)
    assert metric(server, started) == 1
    assert server.check() == SERVING
