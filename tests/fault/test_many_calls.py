# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""10,000 calls, good, bad and given up: memory and file descriptors stay where they were."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from calls import MIB, OpenStream, metric
from server_process import Start, wait_until
from streams import small_cache

from kvcompress.v1 import compression_service_pb2 as pb
from kvcompress.v1.compression_service_pb2_grpc import CompressionServiceStub

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

CALLS = 10_000
WARM_UP = 2_000
GROWTH = 8 * MIB


def compressing(codec: str, cache: bytes) -> Iterator[pb.CompressRequest]:
    """A call of Compress."""
    yield pb.CompressRequest(options=pb.CompressOptions(codec=codec))
    yield pb.CompressRequest(safetensors=cache)


def restoring(artefact: bytes) -> Iterator[pb.DecompressRequest]:
    """A call of Decompress."""
    yield pb.DecompressRequest(options=pb.DecompressOptions())
    yield pb.DecompressRequest(artefact=artefact)


def test_memory_goes_back_when_nobody_calls(start: Start) -> None:
    """What many streams at once have had."""
    server = start()
    before = metric(server, "process_resident_memory_bytes")
    with server.channel() as channel:
        streams = [OpenStream(channel, "ecsq", 32 * MIB).begun() for _ in range(4)]
        for stream in streams:
            stream.send(pb.CompressRequest(safetensors=bytes(7 * MIB)))
        for stream in streams:
            stream.call.cancel()
            stream.send(None)
    wait_until(lambda: metric(server, "process_resident_memory_bytes") <= before + 16 * MIB)


def test_memory_is_flat(start: Start) -> None:
    """Of the server, after a warm-up."""
    server = start()
    with server.channel() as channel:
        stub = CompressionServiceStub(channel)
        *_, head, _ = responses = list(stub.Compress(compressing("int4", small_cache())))
        payload = b"".join(r.artefact.data for r in responses[1:-2])
        artefact = head.artefact.data + payload
        damaged = artefact[:-1] + bytes([artefact[-1] ^ 1])

        def call(number: int) -> None:
            """One call, good or bad; every eighth is given up by its client."""
            running: Any
            if number % 2 == 0:
                codec = "lossless" if number % 3 == 0 else "int4"
                cut = 100 if number % 3 == 1 else None
                running = stub.Compress(compressing(codec, small_cache()[:cut]))
            else:
                running = stub.Decompress(restoring(damaged if number % 3 == 0 else artefact))
            with contextlib.suppress(grpc.RpcError):
                if number % 8 == 7:
                    next(running)
                    running.cancel()
                list(running)

        def state() -> tuple[int, int]:
            """Resident memory and open files."""
            files = len(list(Path(f"/proc/{server.pid}/fd").iterdir()))
            return int(metric(server, "process_resident_memory_bytes")), files

        for number in range(WARM_UP):
            call(number)
        before = state()
        for number in range(WARM_UP, CALLS):
            call(number)
        after = state()
    grown = after[0] - before[0]
    print(f"{before[0] / MIB:.1f} MiB after {WARM_UP} calls, {after[0] / MIB:.1f} after {CALLS}")
    assert grown < GROWTH
    assert after[1] <= before[1]
    assert metric(server, 'kvcompress_errors_total{code="INTERNAL",method="Compress"}') == 0
    assert metric(server, 'kvcompress_errors_total{code="DATA_LOSS",method="Decompress"}') > 1000
