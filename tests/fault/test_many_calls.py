# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""10,000 calls, good, bad and given up: memory and file descriptors stay where they were."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from calls import MIB, metric
from server_process import Start
from streams import small_cache

from kvcompress.v1 import compression_service_pb2 as pb
from kvcompress.v1.compression_service_pb2_grpc import CompressionServiceStub

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

CALLS = 10_000
WARM_UP = 2_000
GROWTH = 8 * MIB


def requests(kind: int, artefact: bytes) -> Iterator[pb.CompressRequest | pb.DecompressRequest]:
    """One of several calls: good ones of each direction, and bad ones."""
    if kind % 2 == 0:
        yield pb.CompressRequest(options=pb.CompressOptions(codec=("int4", "lossless")[kind // 4]))
        yield pb.CompressRequest(safetensors=small_cache()[: 100 if kind == 2 else None])
    else:
        yield pb.DecompressRequest(options=pb.DecompressOptions())
        damaged = artefact[:-1] + bytes([artefact[-1] ^ 1])
        yield pb.DecompressRequest(artefact=damaged if kind == 3 else artefact)


def test_memory_is_flat(start: Start) -> None:
    """Of the server, after a warm-up."""
    server = start()
    with server.channel() as channel:
        stub = CompressionServiceStub(channel)
        *_, head, _ = responses = list(stub.Compress(requests(0, b"")))
        payload = b"".join(r.artefact.data for r in responses[1:-2])
        artefact = head.artefact.data + payload

        def call(number: int) -> None:
            """One call; every eighth is given up by its client."""
            kind = number % 6
            method = stub.Compress if kind % 2 == 0 else stub.Decompress
            running = method(requests(kind, artefact))
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
