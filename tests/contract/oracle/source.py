# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Reading and writing the safetensors files that are compressed."""

import json
import math
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
ITEM_SIZE = {"F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1, "F64": 8}
NUMBERS = tuple(ITEM_SIZE)
ITEM_SIZE |= {"BOOL": 1, "U8": 1, "I8": 1, "I16": 2, "U16": 2, "I32": 4, "U32": 4, "I64": 8}
ITEM_SIZE |= {"U64": 8, "F8_E8M0": 1, "F8_E4M3FNUZ": 1, "F8_E5M2FNUZ": 1, "C64": 8}
FLOAT8 = {
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
}
LARGEST = {"F16": 65504.0, "F8_E4M3": 448.0, "F8_E5M2": 57344.0}


@dataclass(frozen=True)
class Tensor:
    """A tensor as it is stored.

    Attributes:
        name: Its name.
        dtype: Its type, as safetensors names it.
        shape: Its dimensions.
        data: Its elements, little-endian, in C order.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: bytes

    @property
    def values(self) -> F32:
        """The flattened elements, converted to binary32: exactly, but of F64."""
        return widen(self.dtype, self.data)

    @property
    def exact(self) -> F64:
        """The flattened elements in binary64; of types that are no numbers none."""
        return exact(self.dtype, self.data)


def tensor(
    name: str, dtype: str, values: npt.ArrayLike, shape: Iterable[int] | None = None
) -> Tensor:
    """Makes a tensor from numbers, rounded to its type, to nearest even.

    Args:
        name: Its name.
        dtype: A type of NUMBERS.
        values: The elements, of any shape.
        shape: Its dimensions; those of `values` when None.
    """
    array: F32 | F64 = np.asarray(values, np.float32)
    if dtype == "F64":
        array = np.asarray(values, np.float64)
    return Tensor(
        name, dtype, tuple(array.shape if shape is None else shape), narrow(dtype, array.ravel())
    )


def widen(dtype: str, data: bytes) -> F32:
    """Converts stored elements to binary32: exactly, but of F64."""
    if dtype in FLOAT8:
        return np.frombuffer(data, FLOAT8[dtype]).astype(np.float32)
    if dtype == "F64":
        with np.errstate(over="ignore"):
            return np.frombuffer(data, "<f8").astype(np.float32)
    if dtype == "F32":
        return np.frombuffer(data, "<f4").astype(np.float32)
    if dtype == "F16":
        return np.frombuffer(data, "<f2").astype(np.float32)
    return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)


def exact(dtype: str, data: bytes) -> F64:
    """Converts stored elements to binary64; of types that are no numbers returns none."""
    if dtype == "F64":
        return np.frombuffer(data, "<f8").astype(np.float64)
    return widen(dtype, data if dtype in NUMBERS else b"").astype(np.float64)


def round_to(dtype: str, values: F32) -> bytes:
    """Rounds decoded values to stored elements; a finite value stays finite."""
    if dtype in LARGEST:
        values = np.clip(values, -np.float32(LARGEST[dtype]), np.float32(LARGEST[dtype]))
    return narrow(dtype, values)


def narrow(dtype: str, values: F32 | F64) -> bytes:
    """Rounds to stored elements, to nearest even; FP8 as PyTorch does."""
    if dtype in FLOAT8:
        with np.errstate(over="ignore", invalid="ignore"):
            return values.astype(FLOAT8[dtype]).tobytes()
    if dtype == "F64":
        return values.astype("<f8").tobytes()
    if dtype == "F32":
        return values.astype("<f4").tobytes()
    if dtype == "F16":
        with np.errstate(over="ignore"):
            return values.astype("<f2").tobytes()
    bits = values.view(np.uint32).astype(np.uint64)
    half = np.uint64(0x8000)
    low, kept = bits & np.uint64(0xFFFF), bits >> np.uint64(16)
    up = (low > half) | ((low == half) & (kept & np.uint64(1) == 1))
    nan = np.isnan(values)
    rounded = np.where(nan, kept | np.uint64(0x40), kept + up)
    return rounded.astype("<u2").tobytes()


def write(
    tensors: Iterable[Tensor],
    metadata: Mapping[str, str] | Iterable[tuple[str, str]] = (),
) -> bytes:
    """Makes a safetensors file the way section 4 of FORMAT.md does.

    Args:
        tensors: The tensors, in order.
        metadata: The file's metadata, in order.
    """
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if dict(metadata) else {}
    body = b""
    for each in tensors:
        header[each.name] = {
            "dtype": each.dtype,
            "shape": list(each.shape),
            "data_offsets": [len(body), len(body) + len(each.data)],
        }
        body += each.data
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % 8)
    return struct.pack("<Q", len(text)) + text + body


def read(file: bytes) -> tuple[list[Tensor], dict[str, str]]:
    """Reads a safetensors file that is known to be good.

    Returns:
        The tensors in the order of the data, empty ones at one offset in the order of the
        header, and the metadata in its order.
    """
    (length,) = struct.unpack_from("<Q", file)
    header = json.loads(file[8 : 8 + length])
    metadata = header.pop("__metadata__", None) or {}
    tensors = []
    for name, entry in sorted(header.items(), key=lambda item: tuple(item[1]["data_offsets"])):
        begin, end = entry["data_offsets"]
        data = file[8 + length + begin : 8 + length + end]
        assert len(data) == math.prod(entry["shape"]) * ITEM_SIZE[entry["dtype"]]
        tensors.append(Tensor(name, entry["dtype"], tuple(entry["shape"]), data))
    return tensors, metadata
