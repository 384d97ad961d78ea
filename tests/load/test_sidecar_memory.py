# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""A server with the budget of the sidecar as shipped takes 128k tokens of an 8B model."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from process_memory import peak
from server_process import Start
from test_memory import CHUNK, MIB, block, header_of

from kvcompress.v1 import compression_service_pb2 as pb
from kvcompress.v1.compression_service_pb2_grpc import CompressionServiceStub

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SIDECAR = (
    Path(__file__).parents[2] / "deploy" / "kubernetes" / "components" / "sidecar" / "sidecar.yaml"
)
PROCESS = 64 * MIB  # of the limit, that is no stream's
SHAPE = [1, 8, 131072, 128]
SIZE = 256 * MIB


def shipped() -> tuple[int, int]:
    """The memory limit of the sidecar, and the budget that follows from it."""
    (limit,) = {
        int(each) << 30 for each in re.findall(r"memory: (\d+)Gi$", SIDECAR.read_text(), re.M)
    }
    return limit, (limit - PROCESS) // 2


@pytest.mark.parametrize("codec", ["klt", "auto"])
def test_128k_tokens_fit(start: Start, codec: str) -> None:
    """Keys of 256 MiB of BF16 are compressed, within the budget and far within the limit."""
    limit, budget = shipped()
    server = start("--memory-budget-bytes", str(budget))

    def requests() -> Iterator[pb.CompressRequest]:
        yield pb.CompressRequest(options=pb.CompressOptions(codec=codec))
        yield pb.CompressRequest(safetensors=header_of({"layer_0_key": SHAPE}))
        data = pb.CompressRequest(safetensors=block())
        for _ in range(SIZE // CHUNK):
            yield data

    with server.channel() as channel:
        trailer = None
        for response in CompressionServiceStub(channel).Compress(requests(), timeout=600):
            if response.HasField("trailer"):
                trailer = response.trailer
    assert trailer is not None
    assert trailer.original_size_bytes == SIZE
    used = peak(server.pid)
    print(f"{codec}: {used / MIB:.0f} MiB resident of a budget of {budget / MIB:.0f} MiB")
    assert SIZE < used < budget + PROCESS < limit
