# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""A header of a hundred bytes announces a tensor of a gibibyte, in every shape.

Memory must grow with what has arrived, not with what is announced, whatever the codec. A server
once kept sums for each of the 2^28 channels that a shape spoke of, 4 GiB of them.
"""

import json
import math
from collections.abc import Iterator

import grpc
import pytest
from process_memory import peak
from server_process import PATIENCE, Start

from kvcompress.v1 import compression_service_pb2 as pb
from kvcompress.v1.compression_service_pb2_grpc import CompressionServiceStub
from kvcompress.v1.server_info_pb2 import GetServerInfoRequest

MIB = 1 << 20
MANY = 1 << 28
SHAPES = [[1, 1, 1, MANY], [1, 1, MANY, 1], [1, MANY, 1, 1], [MANY, 1, 1, 1], [1, 1, 4096, 65536]]
# Of the process, which takes 22 MiB without a call. Codecs of whole tensors begin with some of
# what they will need.
MOST = 128 * MIB
# Announced memory is reserved: every codec's must fit, for the call to be let in.
BUDGET = 32 << 30


def requests(codec: str, shape: list[int]) -> Iterator[pb.CompressRequest]:
    """A header, and four MiB of what it announces."""
    tensor = {"dtype": "F32", "shape": shape, "data_offsets": [0, 4 * math.prod(shape)]}
    text = json.dumps({"layers.0.key": tensor}).encode()
    yield pb.CompressRequest(options=pb.CompressOptions(codec=codec))
    yield pb.CompressRequest(safetensors=len(text).to_bytes(8, "little") + text)
    for _ in range(4):
        yield pb.CompressRequest(safetensors=bytes(MIB))


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "x".join(map(str, shape)))
def test_what_is_announced_takes_no_memory(start: Start, shape: list[int]) -> None:
    """Every codec says that the input ends early, and the process has stayed small."""
    server = start("--memory-budget-bytes", str(BUDGET))
    server.wait_until_serving()
    with server.channel() as channel:
        stub = CompressionServiceStub(channel)
        codecs = [codec.name for codec in stub.GetServerInfo(GetServerInfoRequest()).codecs]
        assert {"int4", "ecsq", "klt", "auto"} <= set(codecs)
        for codec in codecs:
            with pytest.raises(grpc.RpcError) as refused:
                list(stub.Compress(requests(codec, shape), timeout=PATIENCE))
            assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT, refused.value
            assert "the input ends" in str(refused.value.details())
            assert peak(server.pid) < MOST, codec
