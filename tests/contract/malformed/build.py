# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The pieces that malformed files are put together from."""

import json
import struct
from collections.abc import Mapping, Sequence

Json = Mapping[str, "Json"] | Sequence["Json"] | str | int | float | bool | None

WIDTH = {"F32": 4, "F16": 2, "BF16": 2}


def framed(header: bytes | str, data: bytes = b"", length: int | None = None) -> bytes:
    """A file: the length of the header (or `length` instead), the header, the data."""
    text = header.encode() if isinstance(header, str) else header
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(
    shape: Json = None, offsets: Json = None, dtype: Json = "F32", **extra: Json
) -> dict[str, Json]:
    """The fields of a tensor; by default a sound one of two F32 elements."""
    return {
        "dtype": dtype,
        "shape": [2] if shape is None else shape,
        "data_offsets": [0, 8] if offsets is None else offsets,
        **extra,
    }


def without(field: str) -> dict[str, Json]:
    """A sound tensor that lacks one field."""
    fields = entry()
    del fields[field]
    return fields


def tensors(data: bytes = bytes(8), **entries: Json) -> bytes:
    """A file with these entries, in this order, and this data."""
    return framed(json.dumps(entries, separators=(",", ":")), data)


def values(dtype: str, elements: list[int]) -> bytes:
    """A file with one tensor `x` of these elements, given by their bits."""
    width = WIDTH[dtype]
    data = b"".join(bits.to_bytes(width, "little") for bits in elements)
    return tensors(data, x=entry([len(elements)], [0, len(data)], dtype))
