# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""NumPy arrays in and out of the safetensors format."""

import json
import math
import struct
from typing import Any

import numpy as np
import numpy.typing as npt

from kvcompress.v1 import tensor_pb2

Array = npt.NDArray[Any]

_DATA_TYPES = {
    "float32": tensor_pb2.DATA_TYPE_F32,
    "float16": tensor_pb2.DATA_TYPE_F16,
    "bfloat16": tensor_pb2.DATA_TYPE_BF16,
}
_FILE_TYPES: dict[str, np.dtype[Any]] = {
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),
}


def data_type(name: str) -> tensor_pb2.DataType.ValueType | None:
    """Gives the element type of the API for the name of a dtype.

    Args:
        name: As NumPy, ml_dtypes and torch give it, such as `bfloat16`.

    Returns:
        The type, or None when elements of this dtype cannot be compressed.
    """
    return _DATA_TYPES.get(name)


def little_endian_bytes(array: Array) -> memoryview:
    """Gives the elements in C order as little-endian bytes.

    Args:
        array: An array of float32, float16 or bfloat16, of any shape and strides.

    Returns:
        A view of the array where its layout allows, else of a copy.
    """
    if array.dtype.byteorder == ">" or (array.dtype.byteorder == "=" and not np.little_endian):
        array = array.astype(array.dtype.newbyteorder("<"))
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def load_arrays(data: bytes) -> tuple[dict[str, Array], dict[str, str]]:
    """Opens a safetensors file in memory.

    Args:
        data: The file. Tensors of other types than F32, F16 and BF16 are refused.

    Returns:
        The arrays by name, in the order of the data, as read-only views of `data`, and the
        file's metadata. F32 and F16 are float32 and float16. BF16 is ml_dtypes.bfloat16 when
        that package is installed, else uint16 holding the bit patterns: the upper halves of
        float32 values, so that `(a.astype(np.uint32) << 16).view(np.float32)` gives them.

    Raises:
        ValueError: The bytes are not such a file, or a shape is one that NumPy cannot hold.
    """
    entries, metadata = load_bits(data)
    bfloat16 = _bfloat16()
    arrays = {
        name: bits.view(bfloat16) if dtype == "BF16" else bits
        for name, (dtype, bits) in entries.items()
    }
    return arrays, metadata


def load_bits(data: bytes) -> tuple[dict[str, tuple[str, Array]], dict[str, str]]:
    """Opens a safetensors file as `load_arrays` does, but leaves BF16 as uint16.

    Returns:
        The type as the file names it, and the array, by name; and the metadata.

    Raises:
        ValueError: As `load_arrays`.
    """
    try:
        (length,) = struct.unpack_from("<Q", data)
        if 8 + length > len(data):
            raise ValueError("the file ends within its header")
        header = json.loads(data[8 : 8 + length])
        metadata = dict(header.pop("__metadata__", None) or {})
        arrays = {}
        for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
            dtype, shape = _FILE_TYPES[entry["dtype"]], entry["shape"]
            begin, end = entry["data_offsets"]
            if end - begin != math.prod(shape) * dtype.itemsize:
                raise ValueError(f"tensor {name!r} has another size than its shape asks for")
            flat = np.frombuffer(data, dtype, math.prod(shape), 8 + length + begin)
            arrays[name] = (entry["dtype"], flat.reshape(shape))
    except (struct.error, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a safetensors file: {error!r}") from error
    return arrays, metadata


def _bfloat16() -> np.dtype[Any]:
    """Gives the dtype for BF16: of ml_dtypes where it is installed, else uint16."""
    try:
        import ml_dtypes
    except ImportError:
        return np.dtype("<u2")
    bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return bfloat16
