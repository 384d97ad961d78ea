# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""`lossless`, section 5 of FORMAT.md."""

import math
from collections import defaultdict

import numpy as np

from . import _coded_bytes
from ._codec import Array, Entry, PayloadError
from ._dtypes import SIZES, bits_dtype, from_bits

BLOCK = 65536


class Lossless:
    """Byte planes, each raw, one byte, or coded; every bit as it was."""

    fixed = False

    def accepts(self, parameters: str) -> bool:
        """Whether there are none."""
        return not parameters

    def largest(self, parameters: str, shape: tuple[int, ...], dtype: str, role: str) -> int:
        """Returns the size of a payload whose planes are raw."""
        count, size = math.prod(shape), SIZES[dtype]
        return size * count + 4 * size * -(-count // BLOCK)

    def decode(self, payload: bytes, entry: Entry) -> Array:
        """Decodes a payload to the elements' own bits."""
        try:
            planes = _planes(payload, math.prod(entry.shape), SIZES[entry.dtype])
        except ValueError as error:
            raise PayloadError(str(error), tensor=entry.name) from None
        return from_bits(_join(planes, entry.dtype), entry.dtype)


def _join(planes: list[_coded_bytes.Bytes], dtype: str) -> Array:
    """Returns the bits of elements from their planes."""
    bits = np.zeros(len(planes[0]), bits_dtype(dtype))
    for plane in planes:
        # A shift by all bits of a byte would be undefined.
        bits = (bits << 4) << 4 | plane
    if dtype == "F64":
        rest = bits & ((1 << 48) - 1)
        first, second = (plane.astype(np.uint64) for plane in planes[:2])
        exponent = ((second >> 4 & 7) << 8 | first) + 896 & 2047
        sign = second >> 7 << 63
        return sign | exponent << 52 | (second & 15) << 48 | rest
    if dtype in ("F32", "F16", "BF16"):
        first, second = (plane.astype(bits.dtype) for plane in planes[:2])
        upper = (second & 128) << 8 | first << 7 | (second & 127)
        shift = 8 * len(planes) - 16
        return upper << shift | bits & ((1 << shift) - 1)
    return bits


def least(count: int, size: int) -> int:
    """Returns the bytes that a block of so many elements has at least."""
    return -(-count // 16) if size == 2 else -(-count * size // 64)


def _planes(payload: bytes, count: int, size: int) -> list[_coded_bytes.Bytes]:
    """Returns the byte planes of all elements.

    Raises:
        ValueError: The payload breaks a rule.
    """
    parts: list[list[_coded_bytes.Bytes]] = [[] for _ in range(size)]
    # Coded planes by their number of elements: plane, block, bytes.
    coded: dict[int, list[tuple[int, int, bytes]]] = defaultdict(list)
    position = 0
    for block, start in enumerate(range(0, count, BLOCK)):
        n = min(BLOCK, count - start)
        if len(payload) - position < 4 * size:
            raise ValueError("the payload ends within a block")
        sizes = np.frombuffer(payload, "<u4", size, position).tolist()
        if not all(0 < each <= n for each in sizes):
            raise ValueError("the size of a plane breaks the format")
        end = position + max(4 * size + sum(sizes), least(n, size))
        if end > len(payload):
            raise ValueError("the payload ends within a block")
        position += 4 * size
        for plane, length in enumerate(sizes):
            data = payload[position : position + length]
            position += length
            if 1 < length < n:
                coded[n].append((plane, block, data))
            values = np.frombuffer(data, np.uint8)
            parts[plane].append(values if length == n else np.broadcast_to(values[:1], n))
        if any(payload[position:end]):
            raise ValueError("a block ends with other bytes than zeros")
        position = end
    if position != len(payload):
        raise ValueError("the payload goes on after its last block")
    for n, streams in coded.items():
        decoded = _coded_bytes.decode([data for _, _, data in streams], n)
        for (plane, block, _), values in zip(streams, decoded, strict=True):
            parts[plane][block] = values
    return [np.concatenate([np.zeros(0, np.uint8), *each]) for each in parts]
