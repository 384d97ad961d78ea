# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Makes residuals of `lossless-profile` from numbers, written from core/FORMAT.md alone."""

import struct
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from oracle.crafted_profiles import encode_rows
from oracle.residuals import BLOCK, BLOCK_ELEMENTS, GRIDS, RAW

Ints = npt.NDArray[np.int64]
Bits = npt.NDArray[np.uint16]
_LANES = 32
_LOWEST = 1 << 15


@dataclass
class Block:
    """A block, which need not keep the rules.

    Attributes:
        tables: Of each element.
        differences: Of its indices.
        low: Low bits of each element: the number, and how many.
    """

    tables: Ints
    differences: Ints
    low: list[tuple[int, int]]

    def parts(self, end: int = _LOWEST) -> list[bytes]:
        """States, words, escapes and low bits; `end` is the state that lanes end with."""
        rows = [
            (self.tables[first : first + _LANES], self.differences[first : first + _LANES])
            for first in range(0, len(self.tables), _LANES)
        ]
        bits = [number >> bit & 1 for number, count in self.low for bit in range(count)]
        low = np.packbits(np.array(bits, np.uint8), bitorder="little").tobytes()
        return [*encode_rows(rows, end), low]


def joined(parts: list[bytes], more: int = 0) -> bytes:
    """A block of parts; `more` is what it says to have beyond its size."""
    body = b"".join(parts)
    size = BLOCK.size + len(body) + more
    return BLOCK.pack(size, len(parts[1]) // 2, len(parts[2])) + body


def stored(elements: bytes, more: int = 0, escapes: int = 0) -> bytes:
    """A block of elements as they are; `more` and `escapes` break it."""
    return BLOCK.pack(BLOCK.size + len(elements) + more, RAW, escapes) + elements


def block_of(source: Ints, restored: Ints, levels: Ints, dtype: str) -> Block:
    """The block of elements, by those that the rest restores, and the levels of their channels."""
    grid = GRIDS[dtype]
    floors = grid.floors(levels)
    indices = grid.indices(source, floors)
    low = []
    for element, index, floor in zip(source, indices, floors, strict=True):
        magnitude = abs(int(index))
        if magnitude == 0:
            low.append((int(element), 16))
        elif magnitude >= 1 << grid.mantissa:
            low.append((0, 0))
        else:
            count = min(grid.mantissa + 1 - magnitude.bit_length(), int(floor) - 1)
            low.append((int(element) & (1 << count) - 1, count))
    differences = indices - grid.indices(restored, floors)
    return Block(grid.tables(restored, levels), differences, low)


def tensor_of(blocks: bytes, base: int, levels: bytes, more: int = 0) -> bytes:
    """The residuals of a tensor; `more` is what they say to have beyond their size."""
    body = struct.pack("<H", base) + levels + blocks
    return struct.pack("<Q", (len(body) + more) % (1 << 64)) + body


def encode(
    dtype: str, source: Bits, restored: Bits, base: int, levels: npt.NDArray[np.uint8]
) -> bytes:
    """The residuals of a tensor; blocks that would be too large have elements as they are.

    Args:
        dtype: Of the elements.
        source: Elements, [batches, heads, tokens, channels].
        restored: What the rest of the payload restores of them.
        base: The base of the levels.
        levels: What the channels have beyond it, [heads, channels].
    """
    batches, heads, tokens, channels = source.shape
    run, blocks = max(1, BLOCK_ELEMENTS // channels), b""
    for batch in range(batches):
        for head in range(heads):
            for token in range(0, tokens, run):
                own, near = (
                    each[batch, head, token : token + run].astype(np.int64)
                    for each in (source, restored)
                )
                level = np.broadcast_to(base + levels[head].astype(np.int64), own.shape)
                block = block_of(own.ravel(), near.ravel(), level.ravel(), dtype)
                coded, raw = joined(block.parts()), stored(own.astype("<u2").tobytes())
                blocks += coded if len(coded) <= len(raw) else raw
    return tensor_of(blocks, base, levels.tobytes())
