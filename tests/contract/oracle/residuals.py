# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Reads the residuals of `lossless-profile`, written from core/FORMAT.md alone."""

import struct
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kvcompress.payload._codec import Entry
from kvcompress.payload._ecsq_block import BlockReader, require
from kvcompress.payload._ecsq_tables import TABLES, Tables

RAW = (1 << 32) - 1
"""In the place of the number of words: the elements follow as they are."""
BLOCK = struct.Struct("<III")
"""What a block begins with."""
BLOCK_ELEMENTS = 65_536

_LANES = 32
_STATES = 4 * _LANES  # bytes
_NO_LEVEL = 1 << 16
_UNIT_LEVEL = 1024

Ints = npt.NDArray[np.int64]


class Grid(NamedTuple):
    """What the format derives from the type of the elements.

    Attributes:
        mantissa: Its bits.
        bias: Of the exponent.
        most: The highest floor.
    """

    mantissa: int
    bias: int
    most: int

    def floors(self, levels: Ints) -> Ints:
        """The floors of channels."""
        exponents = (levels - _UNIT_LEVEL) // 4 - 2 + self.bias + self.mantissa
        return np.clip(exponents, 1, self.most)

    def exponents(self, bits: Ints) -> Ints:
        """The exponent fields of elements."""
        return (bits & 0x7FFF) >> self.mantissa

    def indices(self, bits: Ints, floors: Ints) -> Ints:
        """The indices of elements under floors of their channels."""
        magnitudes, exponents = bits & 0x7FFF, self.exponents(bits)
        above = magnitudes - (floors - 1 << self.mantissa)
        own = magnitudes - (np.maximum(exponents - 1, 0) << self.mantissa)
        # Elements have fewer than 62 bits, and NumPy shifts by fewer than 64.
        below = own >> np.clip(floors - np.maximum(exponents, 1), 0, 62)
        found = np.where(exponents >= floors, above, below)
        return np.where(bits & 0x8000, -found, found)

    def tables(self, bits: Ints, levels: Ints) -> Ints:
        """The tables of the differences from elements that the rest of the payload restores."""
        highest = np.maximum(self.exponents(bits), self.floors(levels))
        shifted = highest - self.bias - self.mantissa
        tables: Ints = np.clip(15 + (levels - _UNIT_LEVEL) - 4 * shifted, 0, TABLES - 1)
        return tables


GRIDS = {"BF16": Grid(7, 127, 254), "F16": Grid(10, 15, 30)}


class _Block(BlockReader):
    """A block whose elements are coded."""

    def __init__(self, data: bytes, words: int, escapes: int, entry: Entry) -> None:
        """Cuts what follows the block's header."""
        self.entry = entry
        ends = np.cumsum([_STATES, 2 * words, escapes]).tolist()
        self._require(ends[-1] <= len(data))
        self.states = np.frombuffer(data[: ends[0]], "<u4").astype(np.int64)
        self._require(bool(((self.states >= 1 << 15) & (self.states < 1 << 31)).all()))
        self.words = np.frombuffer(data[ends[0] : ends[1]], "<u2").astype(np.int64)
        self.escapes = data[ends[1] : ends[2]]
        self.low = np.unpackbits(np.frombuffer(data[ends[2] :], np.uint8), bitorder="little")
        self.word = self.escape = self.low_bit = 0
        self.coder = Tables.get()

    def elements(self, restored: Ints, levels: Ints) -> Ints:
        """The elements of the source: of those that the rest restores, and their levels."""
        grid = GRIDS[self.entry.dtype]
        floors, tables = grid.floors(levels), grid.tables(restored, levels)
        rows = range(0, len(tables), _LANES)
        symbols = np.concatenate([self._row(tables[row : row + _LANES]) for row in rows])
        indices = grid.indices(restored, floors) + self._resolve(symbols)
        found = self._with_low_bits(grid, indices, floors)
        self._finish()
        return found

    def _with_low_bits(self, grid: Grid, indices: Ints, floors: Ints) -> Ints:
        """The elements of these indices."""
        sizes = np.abs(indices)
        logarithms = np.frexp(sizes.astype(np.float64))[1].astype(np.int64) - 1
        zero, large = sizes == 0, sizes >= 1 << grid.mantissa
        shifts = np.minimum(grid.mantissa - logarithms, floors - 1)
        shifts = np.where(zero | large, 0, shifts)
        low = self._low(np.where(zero, 16, shifts))
        magnitudes = (floors - shifts - 1 << grid.mantissa) + (sizes << shifts) + low
        self._require(bool((zero | (magnitudes < 1 << 15)).all()))
        signed = magnitudes + np.where(indices < 0, 0x8000, 0)
        self._require(not (zero & (grid.indices(low, floors) != 0)).any())
        return np.where(zero, low, signed)


class Residuals:
    """Those of a tensor.

    Args:
        data: What begins with those of the tensor.
        entry: Of the tensor.
        heads: Of a batch.
        channels: Of a head.
    """

    def __init__(self, data: bytes, entry: Entry, heads: int, channels: int) -> None:
        """Reads the levels."""
        require(len(data) >= 8, entry, "the residuals end early")
        (length,) = struct.unpack_from("<Q", data)
        self.size = 8 + length
        """Bytes of those of the tensor."""
        count = heads * channels
        require(2 + count <= length <= len(data) - 8, entry, "the residuals end early")
        (base,) = struct.unpack_from("<H", data, 8)
        levels = base + np.frombuffer(data, "u1", count, 10).astype(np.int64)
        require(bool((levels < _NO_LEVEL).all()), entry, "a level is out of its range")
        self._levels = levels.reshape(heads, channels)
        self._blocks, self._entry = data[10 + count : self.size], entry

    def restore(self, restored: "npt.NDArray[np.uint16]") -> bytes:
        """The elements of the source: of those that the rest restores.

        Args:
            restored: Bits, [batches, heads, tokens, channels].
        """
        batches, heads, tokens, channels = restored.shape
        run, position, parts = max(1, BLOCK_ELEMENTS // channels), 0, []
        for batch in range(batches):
            for head in range(heads):
                for token in range(0, tokens, run):
                    found = restored[batch, head, token : token + run].astype(np.int64)
                    levels = np.broadcast_to(self._levels[head], found.shape)
                    part, position = self._block(position, found.ravel(), levels.ravel())
                    parts.append(part)
        require(position == len(self._blocks), self._entry, "bytes follow the residuals")
        return b"".join(parts)

    def _block(self, position: int, restored: Ints, levels: Ints) -> tuple[bytes, int]:
        """Reads the block at a position; returns the elements, and where it ends."""
        left, raw_size = len(self._blocks) - position, 2 * len(restored) + BLOCK.size
        self._require(left >= BLOCK.size)
        size, words, escapes = BLOCK.unpack_from(self._blocks, position)
        self._require(BLOCK.size <= size <= min(left, raw_size))
        body = self._blocks[position + BLOCK.size : position + size]
        if words == RAW:
            self._require(escapes == 0 and size == raw_size)
            return body, position + size
        found = _Block(body, words, escapes, self._entry).elements(restored, levels)
        return found.astype("<u2").tobytes(), position + size

    def _require(self, condition: bool) -> None:
        require(condition, self._entry, "a block of residuals breaks the format")
