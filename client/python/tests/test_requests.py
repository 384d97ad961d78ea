# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""How tensors are cut into messages."""

import numpy as np
import pytest

import kvcompress
from kvcompress._requests import CHUNK_BYTES, compress_requests
from kvcompress.v1 import compression_service_pb2 as service_pb2

Arrays = dict[str, kvcompress.Array]


def messages_of(
    tensors: Arrays, metadata: dict[str, str] | None = None
) -> tuple[list[service_pb2.CompressRequest], int]:
    """Messages behind the options, and how many bytes of elements these are said to have."""
    told: list[int] = []
    stream = compress_requests(
        service_pb2.CompressRequest,
        service_pb2.CompressOptions(codec="int4"),
        tensors,
        metadata,
        told.append,
    )
    first, *others = stream
    assert first.options.codec == "int4"
    return others, sum(told)


def test_small_tensors_share_messages() -> None:
    random = np.random.default_rng(1)
    tensors: Arrays = {
        f"layer_{i}_key": random.standard_normal((1, 2, 3000 * (i % 5), 8)).astype(np.float16)
        for i in range(40)
    }
    tensors["of no element"] = np.zeros((0, 3), np.float32)
    tensors["turned"] = np.arange(600_000, dtype=np.int32).reshape(600, 1000).T
    metadata = {"model": "m", "\u00e4": '"'}
    messages, told = messages_of(tensors, metadata)
    assert {each.WhichOneof("message") for each in messages} == {"safetensors"}
    pieces = [each.safetensors for each in messages]
    assert all(len(piece) == CHUNK_BYTES for piece in pieces[1:-1])
    assert len(pieces[-1]) <= CHUNK_BYTES
    assert told == sum(array.nbytes for array in tensors.values())
    arrays, found = kvcompress.load_arrays(b"".join(pieces))
    assert found == metadata
    assert list(arrays) == list(tensors)
    for name, array in tensors.items():
        assert arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(arrays[name], array)


@pytest.mark.parametrize(
    "tensors",
    [
        {"a": np.zeros(CHUNK_BYTES, np.uint8), "b": np.ones(CHUNK_BYTES // 2, np.float32)},
        {"__metadata__": np.zeros(3, np.float32)},
    ],
)
def test_others_come_tensor_by_tensor(tensors: Arrays) -> None:
    messages, told = messages_of(tensors)
    assert [each.name for each in messages[0].tensors.tensors] == list(tensors)
    chunks = [each.tensor_data for each in messages[1:]]
    for name, array in tensors.items():
        data = b"".join(chunk.data for chunk in chunks if chunk.name == name)
        assert data == array.tobytes()
    assert told == sum(array.nbytes for array in tensors.values())
