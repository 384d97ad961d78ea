# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""torch tensors of every element type, in and out, bit for bit."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow
torch = pytest.importorskip("torch", reason="torch is not installed")

import kvcompress  # noqa: E402
from kvcompress._arrays import ITEM_SIZES, TORCH_TYPES, data_type, little_endian_bytes  # noqa: E402
from kvcompress._torch_tensors import dtype_name, load_torch, tensor_bits  # noqa: E402
from kvcompress.torch import load_file, save_file  # noqa: E402
from kvcompress.v1 import tensor_pb2  # noqa: E402


@pytest.mark.parametrize("dtype", ITEM_SIZES)
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)])
def test_bits_stay(dtype: str, shape: tuple[int, ...]) -> None:
    known: Any = getattr(torch, TORCH_TYPES[dtype])
    size = torch.zeros(shape).numel() * ITEM_SIZES[dtype]
    data = bytes(size) if dtype == "BOOL" else bytes(range(100, 100 + size))
    header = {"x": {"dtype": dtype, "shape": shape, "data_offsets": [0, size]}}
    text = json.dumps(header).encode()
    tensor = load_torch(struct.pack("<Q", len(text)) + text + data)["x"]
    assert (tensor.dtype, tuple(tensor.shape)) == (known, shape)
    assert data_type(dtype_name(tensor)) == tensor_pb2.DataType.Value(f"DATA_TYPE_{dtype}")
    assert bytes(little_endian_bytes(tensor_bits(tensor))) == data


def test_save_and_load_files_of_tensors(client: kvcompress.Client, tmp_path: Path) -> None:
    """As with safetensors.torch, but compressed; what is loaded can be written to."""
    states = torch.randn(1, 2, 40, 16, generator=torch.Generator().manual_seed(0))
    tensors = {"layer_0_key": states.bfloat16(), "layer_0_value": states.half().transpose(1, 2)}
    path = tmp_path / "cache.kvc.safetensors"
    save_file(tensors, path, {"a": "b"}, client=client, codec="lossless")
    loaded = load_file(path, torch.device("cpu"), client=client)
    assert loaded.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert loaded[name].dtype == tensor.dtype
        assert torch.equal(loaded[name], tensor)
        loaded[name].zero_()
    assert load_file(path, "meta", client=client)["layer_0_key"].is_meta
