# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""`lossless`, section 5 of FORMAT.md."""

import math
from collections import defaultdict

import numpy as np

from . import _rans
from ._codec import Array, Entry, PayloadError, from_bits

_BLOCK = 65536
_SIZES = {"F32": 4, "F16": 2, "BF16": 2}


class Lossless:
    """Byte planes, each raw, one byte, or coded; every bit as it was."""

    fixed = False

    def accepts(self, parameters: str) -> bool:
        """Whether there are none."""
        return not parameters

    def largest(self, parameters: str, shape: tuple[int, ...], dtype: str, role: str) -> int:
        """Gives the size of a payload whose planes are raw."""
        count, size = math.prod(shape), _SIZES[dtype]
        return size * count + 4 * size * -(-count // _BLOCK)

    def decode(self, payload: bytes, entry: Entry) -> Array:
        """Decodes a payload to the elements' own bits."""
        try:
            planes = _planes(payload, math.prod(entry.shape), _SIZES[entry.dtype])
        except ValueError as error:
            raise PayloadError(str(error), tensor=entry.name) from None
        first, second = (plane.astype(np.uint16) for plane in planes[:2])
        bits = (second & 128) << 8 | first << 7 | (second & 127)
        if entry.dtype != "F32":
            return from_bits(bits, entry.dtype)
        third, fourth = (plane.astype(np.uint32) for plane in planes[2:])
        return from_bits(bits.astype(np.uint32) << 16 | third << 8 | fourth, entry.dtype)


def _planes(payload: bytes, count: int, size: int) -> list[_rans.Bytes]:
    """Gives the byte planes of all elements.

    Raises:
        ValueError: The payload breaks a rule.
    """
    parts: list[list[_rans.Bytes]] = [[] for _ in range(size)]
    # Coded planes by their number of elements: plane, block, bytes.
    coded: dict[int, list[tuple[int, int, bytes]]] = defaultdict(list)
    position = 0
    for block, start in enumerate(range(0, count, _BLOCK)):
        n = min(_BLOCK, count - start)
        if len(payload) - position < 4 * size:
            raise ValueError("the payload ends within a block")
        sizes = np.frombuffer(payload, "<u4", size, position).tolist()
        if not all(0 < each <= n for each in sizes):
            raise ValueError("the size of a plane breaks the format")
        end = position + max(4 * size + sum(sizes), -(-n // 16))
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
        decoded = _rans.decode([data for _, _, data in streams], n)
        for (plane, block, _), values in zip(streams, decoded, strict=True):
            parts[plane][block] = values
    return [np.concatenate([np.zeros(0, np.uint8), *each]) for each in parts]
