# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Arrays in and out of the safetensors format."""

import struct
import sys

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

import kvcompress
from kvcompress._arrays import (
    FILE_TYPES,
    ITEM_SIZES,
    TORCH_TYPES,
    data_type,
    little_endian_bytes,
)
from kvcompress.v1 import tensor_pb2


def test_safetensors_file() -> None:
    arrays: dict[str, kvcompress.Array] = {
        "b": np.arange(6, dtype=np.float32).reshape(2, 3),
        "a": np.array(1.5, np.float16),
        "empty": np.zeros((0, 4), np.float32),
    }
    file = safetensors.numpy.save(arrays, {"k": "v"})
    loaded, metadata = kvcompress.load_arrays(file)
    assert metadata == {"k": "v"}
    assert loaded.keys() == arrays.keys()
    for name, array in arrays.items():
        assert loaded[name].dtype == array.dtype
        assert np.array_equal(loaded[name], array)
        assert not loaded[name].flags.writeable


BF16 = b'{"x":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}}'
FILE = struct.pack("<Q", len(BF16)) + BF16 + np.array([0x3F80, 0xC040], "<u2").tobytes()


def test_bfloat16() -> None:
    array = kvcompress.load_arrays(FILE)[0]["x"]
    assert array.dtype == ml_dtypes.bfloat16
    assert array.astype(np.float32).tolist() == [1.0, -3.0]


def test_bfloat16_without_ml_dtypes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    array = kvcompress.load_arrays(FILE)[0]["x"]
    assert array.dtype == np.uint16
    assert (array.astype(np.uint32) << 16).view(np.float32).tolist() == [1.0, -3.0]


@pytest.mark.parametrize(
    "file",
    [
        b"",
        b"\x01",
        struct.pack("<Q", 2) + b"[]",
        struct.pack("<Q", 100) + b"{}",
        FILE[:-1],
        FILE.replace(b"[2]", b"[3]"),
        FILE.replace(b"BF16", b"BF17"),
    ],
)
def test_no_safetensors_file(file: bytes) -> None:
    with pytest.raises(ValueError, match=r".*"):
        kvcompress.load_arrays(file)


def test_load_arrays_says_what_else_a_file_is() -> None:
    head = b'{"__metadata__":{"kvcompress.format":"1"}}'
    with pytest.raises(ValueError, match=r"an artefact .*client\.decompress.*payload\.read"):
        kvcompress.load_arrays(struct.pack("<Q", len(head)) + head)
    with pytest.raises(ValueError, match=r"of 2314885530818453536 bytes announced .* 2"):
        kvcompress.load_arrays(b" " * 10)
    with pytest.raises(TypeError, match=r"read_bytes\(\)"):
        kvcompress.load_arrays("cache.safetensors")  # type: ignore[arg-type]


def test_types() -> None:
    assert data_type(np.zeros(1, np.float32).dtype.name) == tensor_pb2.DATA_TYPE_F32
    assert data_type(np.zeros(1, ">f2").dtype.name) == tensor_pb2.DATA_TYPE_F16
    assert data_type(np.zeros(1, ml_dtypes.bfloat16).dtype.name) == tensor_pb2.DATA_TYPE_BF16
    for name in ("float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"):
        dtype = np.dtype(getattr(ml_dtypes, name))
        assert data_type(dtype.name) is not None
    for name in ("float64", "bool", "int8", "uint64", "complex64"):
        assert data_type(np.dtype(name).name) is not None
    assert data_type("float4_e2m1fn_x2") is None
    assert data_type("complex128") is None


def test_every_type_of_the_api_is_here() -> None:
    assert len(FILE_TYPES) == len(tensor_pb2.DataType.values()) - 1
    assert set(FILE_TYPES.values()) == set(ITEM_SIZES) == set(TORCH_TYPES)


@pytest.mark.parametrize(
    ("file_type", "name"),
    [
        ("F8_E4M3", "float8_e4m3fn"),
        ("F8_E5M2", "float8_e5m2"),
        ("F8_E8M0", "float8_e8m0fnu"),
        ("F8_E4M3FNUZ", "float8_e4m3fnuz"),
        ("F8_E5M2FNUZ", "float8_e5m2fnuz"),
    ],
)
def test_float8(monkeypatch: pytest.MonkeyPatch, file_type: str, name: str) -> None:
    text = f'{{"x":{{"dtype":"{file_type}","shape":[2,128],"data_offsets":[0,256]}}}}'.encode()
    file = struct.pack("<Q", len(text)) + text + bytes(range(256))
    array = kvcompress.load_arrays(file)[0]["x"]
    assert array.dtype == np.dtype(getattr(ml_dtypes, name))
    assert bytes(little_endian_bytes(array)) == bytes(range(256))
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    array = kvcompress.load_arrays(file)[0]["x"]
    assert array.dtype == np.uint8
    assert array.shape == (2, 128)


def test_what_safetensors_writes_of_other_types() -> None:
    arrays: dict[str, kvcompress.Array] = {
        name: np.arange(4).astype(name).reshape(2, 2)
        for name in ("float64", "int64", "int32", "int16", "int8", "uint64", "uint32", "uint16")
    }
    arrays["bool"] = np.array([True, False])
    arrays["complex64"] = np.array([1 + 2j], np.complex64)
    loaded, _ = kvcompress.load_arrays(safetensors.numpy.save(arrays))
    for name, array in arrays.items():
        assert loaded[name].dtype == array.dtype
        assert np.array_equal(loaded[name], array)


def test_bytes_are_little_endian_in_c_order() -> None:
    array = np.arange(6, dtype="<f4").reshape(2, 3)
    want = array.tobytes()
    assert bytes(little_endian_bytes(array)) == want
    assert bytes(little_endian_bytes(array.astype(">f4"))) == want
    assert bytes(little_endian_bytes(np.asfortranarray(array))) == want
    assert bytes(little_endian_bytes(np.array(2, np.float32))) == np.float32(2).tobytes()
    assert bytes(little_endian_bytes(np.zeros((0, 3), np.float16))) == b""
    halves = np.array([1, -3], ml_dtypes.bfloat16)
    assert bytes(little_endian_bytes(halves)) == FILE[-4:]
