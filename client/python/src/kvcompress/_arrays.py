# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""NumPy arrays in and out of the safetensors format."""

import json
import math
import mmap
import os
import struct
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from kvcompress.v1 import tensor_pb2

Array = npt.NDArray[Any]
_Entry = dict[str, Any]  # of a header

# By the names that NumPy, ml_dtypes and torch give; as safetensors names them; what holds their
# bits in NumPy; and whether ml_dtypes has the type itself, else NumPy.
_TYPES = (
    ("float32", "F32", "<f4", False),
    ("float16", "F16", "<f2", False),
    ("bfloat16", "BF16", "<u2", True),
    ("float8_e4m3fn", "F8_E4M3", "u1", True),
    ("float8_e5m2", "F8_E5M2", "u1", True),
    ("float64", "F64", "<f8", False),
    ("bool", "BOOL", "?", False),
    ("uint8", "U8", "u1", False),
    ("int8", "I8", "i1", False),
    ("int16", "I16", "<i2", False),
    ("uint16", "U16", "<u2", False),
    ("int32", "I32", "<i4", False),
    ("uint32", "U32", "<u4", False),
    ("int64", "I64", "<i8", False),
    ("uint64", "U64", "<u8", False),
    ("float8_e8m0fnu", "F8_E8M0", "u1", True),
    ("float8_e4m3fnuz", "F8_E4M3FNUZ", "u1", True),
    ("float8_e5m2fnuz", "F8_E5M2FNUZ", "u1", True),
    ("complex64", "C64", "<c8", False),
)
_DATA_TYPES = {name: tensor_pb2.DataType.Value(f"DATA_TYPE_{file}") for name, file, _, _ in _TYPES}
_FILE_TYPES: dict[str, np.dtype[Any]] = {file: np.dtype(bits) for _, file, bits, _ in _TYPES}
_ML_DTYPES = {file: name for name, file, _, own in _TYPES if own}
_ARTEFACT_KEY = "kvcompress.format"
FILE_TYPES = {
    data_type: name.removeprefix("DATA_TYPE_")
    for name, data_type in tensor_pb2.DataType.items()
    if data_type
}
"""Element types of the API as safetensors names them."""
ITEM_SIZES = {file: dtype.itemsize for file, dtype in _FILE_TYPES.items()}
"""Bytes of an element, by the name of the type in safetensors."""
TORCH_TYPES = {file: name for name, file, _, _ in _TYPES}
"""Names of the types in torch."""


def data_type(name: str) -> tensor_pb2.DataType.ValueType | None:
    """Returns the element type of the API for the name of a dtype.

    Args:
        name: As NumPy, ml_dtypes and torch give it, such as `bfloat16`.

    Returns:
        The type, or None when elements of this dtype cannot be compressed.
    """
    return _DATA_TYPES.get(name)


def little_endian_bytes(array: Array) -> memoryview:
    """Returns the elements in C order as little-endian bytes.

    Args:
        array: An array of a type that `data_type` knows, of any shape and strides.

    Returns:
        A view of the array where its layout allows, else of a copy.
    """
    if array.dtype.byteorder == ">" or (array.dtype.byteorder == "=" and not np.little_endian):
        array = array.astype(array.dtype.newbyteorder("<"))
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def file_header(table: tensor_pb2.TensorTable) -> bytes:
    """Returns the length and the header of a safetensors file with these tensors, in their order.

    Args:
        table: Tensors of types that have names in safetensors, and metadata, which come in the
            order of their keys, as of a table.
    """
    header: dict[str, object] = {}
    if table.metadata:
        in_order = sorted(table.metadata.items(), key=lambda item: item[0].encode())
        header["__metadata__"] = dict(in_order)
    end = 0
    for tensor in table.tensors:
        begin, end = end, end + table_bytes(tensor)
        header[tensor.name] = {
            "dtype": FILE_TYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def table_bytes(tensor: tensor_pb2.TensorSpec) -> int:
    """Returns the bytes that the elements of a tensor of a table take."""
    return math.prod(tensor.shape) * ITEM_SIZES[FILE_TYPES[tensor.dtype]]


def load_arrays(data: bytes) -> tuple[dict[str, Array], dict[str, str]]:
    """Opens a safetensors file in memory.

    Args:
        data: The file. Types whose elements are not whole bytes are refused.

    Returns:
        The arrays by name, in the order of the data, as read-only views of `data`, and the
        file's metadata. BF16 and the 8-bit floating-point types are those of ml_dtypes when that
        package is installed, else uint16 or uint8 holding the bit patterns; those of BF16 are
        the upper halves of float32 values, so that
        `(a.astype(np.uint32) << 16).view(np.float32)` gives them.

    Raises:
        TypeError: `data` is a path.
        ValueError: The bytes are not such a file, or are an artefact of KV Compress, which
            `Client.decompress` and `payload.read` read; or a shape is one that NumPy cannot hold.

    Examples:
        >>> import safetensors.numpy
        >>> file = safetensors.numpy.save({"layer_0_key": np.ones((1, 2, 3), np.float16)})
        >>> arrays, metadata = load_arrays(file)
        >>> arrays["layer_0_key"].shape
        (1, 2, 3)
    """
    entries, metadata = load_bits(data)
    return {name: _typed(*entry) for name, entry in entries.items()}, metadata


def load_bits(data: bytes | mmap.mmap) -> tuple[dict[str, tuple[str, Array]], dict[str, str]]:
    """Opens a safetensors file as `load_arrays` does, with bits where NumPy has no type.

    Returns:
        The type as the file names it, and the array, by name; and the metadata.

    Raises:
        ValueError: As `load_arrays`.
    """
    if isinstance(data, str | os.PathLike):
        raise TypeError("the bytes of a file are needed, such as Path(path).read_bytes()")
    with _reading():
        start, entries, metadata = _read_header(data)
        return {name: _bits(data, start, name, entry) for name, entry in entries}, metadata


class ArrivingArrays:
    """The arrays of a safetensors file whose bytes come one after the other.

    Not thread safe.
    """

    def __init__(self) -> None:
        """Begins before the first byte."""
        self._start = 0
        self._left: deque[tuple[str, _Entry]] | None = None

    def take(self, data: bytearray) -> Iterator[tuple[str, Array]]:
        """Yields the arrays that are complete by now, each once, as read-only copies.

        Args:
            data: All that has come of the file.

        Raises:
            ValueError: As `load_arrays`.
        """
        with _reading():
            if self._left is None:
                if len(data) < 8 or len(data) < 8 + struct.unpack_from("<Q", data)[0]:
                    return
                self._start, entries, _ = _read_header(data)
                self._left = deque(entries)
            while self._left:
                name, entry = self._left[0]
                begin, end = (self._start + offset for offset in entry["data_offsets"])
                if len(data) < end:
                    return
                self._left.popleft()
                yield (
                    name,
                    _typed(*_bits(bytes(data[begin:end]), -entry["data_offsets"][0], name, entry)),
                )


@contextmanager
def _reading() -> Iterator[None]:
    """Converts parse errors to a ValueError."""
    try:
        yield
    except (struct.error, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a safetensors file: {error!r}") from error


def _read_header(
    data: bytes | bytearray | mmap.mmap,
) -> tuple[int, list[tuple[str, _Entry]], dict[str, str]]:
    """Returns the offset of a file's data, its tensors in the order of the data, and metadata."""
    (length,) = struct.unpack_from("<Q", data)
    if 8 + length > len(data):
        raise ValueError(
            f"the file ends within its header: of {length} bytes announced at its start there "
            f"are {len(data) - 8}; it is cut short, or no safetensors file"
        )
    header = json.loads(data[8 : 8 + length])
    metadata = dict(header.pop("__metadata__", None) or {})
    if _ARTEFACT_KEY in metadata:
        raise ValueError(
            "this is an artefact of KV Compress: client.decompress(...) restores it, and "
            "kvcompress.payload.read(...) reads it without a server"
        )
    entries = sorted(header.items(), key=lambda item: item[1]["data_offsets"])
    return 8 + length, entries, metadata


def _bits(data: bytes | mmap.mmap, start: int, name: str, entry: _Entry) -> tuple[str, Array]:
    """Returns the type of a tensor and its array, a view of the data that begins at `start`."""
    dtype, shape = _FILE_TYPES[entry["dtype"]], entry["shape"]
    begin, end = entry["data_offsets"]
    if end - begin != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"tensor {name!r} has another size than its shape asks for")
    flat = np.frombuffer(data, dtype, math.prod(shape), start + begin)
    return entry["dtype"], flat.reshape(shape)


def _typed(dtype: str, bits: Array) -> Array:
    """Views an array as the type of ml_dtypes, where NumPy has none and that is installed."""
    if dtype not in _ML_DTYPES:
        return bits
    try:
        import ml_dtypes
    except ImportError:
        return bits
    return bits.view(getattr(ml_dtypes, _ML_DTYPES[dtype]))
