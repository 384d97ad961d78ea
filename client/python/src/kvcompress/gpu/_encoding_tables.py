# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What encoders of groups choose by: symbols, thresholds, steps of tokens, and tiles."""

from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch  # type: ignore[import-not-found,unused-ignore]

from kvcompress.gpu._basis import Basis
from kvcompress.gpu._upload import send
from kvcompress.payload._ecsq_tables import ESCAPE, TABLES, Tables

# Squared error, in squared steps, that a bit is worth.
_ERROR_PER_BIT = 0.025
_ESCAPE_BITS = 16
# How steps shrink with the age of a token: exponent, tokens added to the age, octaves.
_WEIGHTING, _NEWEST, _LEAST_OCTAVES, _MOST_OCTAVES = 0.3, 8, -2.0, 0.75


class Projection(NamedTuple):
    """Sizes of the tiles of the projection, in elements of so many bytes: columns and a step."""

    columns: int
    step: int
    size: int

    @property
    def narrow(self) -> bool:
        """Whether elements are binary16."""
        return self.size == 2

    @property
    def warps(self) -> int:
        """Of a program."""
        return 8 if self.columns == 128 else 4


NARROW = Projection(128, 64, 2)
"""In binary16, which holds nearly all there is, scaled to steps."""
NARROW_AMD = Projection(64, 32, 2)
"""The same where a block has 64 KB of shared memory."""
WIDE = Projection(64, 32, 4)
"""In binary32 of which products take as many bits as of binary16: for what is beyond its range."""


class Symbols(NamedTuple):
    """The tables of the entropy encoder.

    Attributes:
        intervals: i32 [28, 64], f << 16 | first of the symbols from -32 on, 63 the escape.
        largest: i32 [28], the largest symbol.
        thresholds: f32 [29, 64], below which the lesser of n and n - 1 is taken.
    """

    intervals: npt.NDArray[np.int32]
    largest: npt.NDArray[np.int32]
    thresholds: npt.NDArray[np.float32]

    @staticmethod
    @cache
    def get() -> "Symbols":
        """Makes them once."""
        tables = Tables.get()
        intervals, largest = np.zeros((TABLES, 64), np.int32), np.zeros(TABLES, np.int32)
        for table, slots in enumerate(tables.symbol[:TABLES]):
            for symbol in np.unique(slots).tolist():
                at = np.flatnonzero(slots == symbol)
                place = 63 if symbol == ESCAPE else symbol + 32
                intervals[table, place] = len(at) << 16 | int(at[0])
            largest[table] = slots[slots != ESCAPE].max()
        bits = np.zeros((TABLES + 1, 64))
        bits[:TABLES] = symbol_costs()[:, 128:192] / 256
        saved = np.diff(bits, axis=1, prepend=0)
        thresholds = np.arange(64) - 0.5 + _ERROR_PER_BIT * saved / 2
        thresholds[:, 0] = 0
        return Symbols(intervals, largest, thresholds.astype(np.float32))


def _log2_times_256(value: int) -> int:
    """256 log2 of a number, rounded down, as the service finds it by integers."""
    result = value.bit_length() - 1
    mantissa = (value << 31) >> result
    for _ in range(8):
        mantissa = mantissa * mantissa >> 31
        carry = mantissa >> 32
        mantissa >>= carry
        result = result << 1 | carry
    return result


@cache
def symbol_costs() -> npt.NDArray[np.int32]:
    """256ths of a bit that numbers take, i32 [28, 256]: those from -127 on, and first an escape.

    A number that a table lacks takes an escape of 16 bits.
    """
    costs = np.zeros((TABLES, 256), np.int32)
    for table, slots in enumerate(Tables.get().symbol[:TABLES]):
        symbols, counts = np.unique(slots, return_counts=True)
        bits = [11 * 256 - _log2_times_256(count) for count in counts.tolist()]
        costs[table] = bits[symbols.tolist().index(ESCAPE)] + 256 * _ESCAPE_BITS
        for symbol, cost in zip(symbols.tolist(), bits, strict=True):
            if symbol != ESCAPE:
                costs[table, symbol + 128] = cost
    return costs


@lru_cache(maxsize=16)
def recent_offsets(tokens: int) -> npt.NDArray[np.int8]:
    """Offsets of tokens: later ones get more attention, and finer steps."""
    attention = -np.log2(np.arange(tokens - 1, -1, -1) + float(_NEWEST))
    octaves = -_WEIGHTING * (attention - attention.mean())
    quarters = 4 * np.clip(octaves, _LEAST_OCTAVES, _MOST_OCTAVES)
    away = np.copysign(np.floor(np.abs(quarters) + 0.5), quarters)
    offsets: npt.NDArray[np.int8] = (-away).astype(np.int8)
    return offsets


class EncodingBasis:
    """What encoders take of a group of a profile besides its Basis.

    Attributes:
        encode: f16 [components, 2 width], the matrix in the order of tiles of pairs.
        factors: f32 [4, width], of first and second channels, then their means.
    """

    def __init__(self, basis: Basis, device: torch.device) -> None:
        """Sends it."""
        group, order = basis.group, basis.order
        numbers = np.stack([group.factors[order], group.means[order]])
        self.factors = send(np.where(order < 0, np.float32(0), numbers).reshape(4, -1), device)
        columns = order.reshape(2, -1, basis.tiling.pairs).transpose(1, 0, 2).ravel()
        whole = np.where(columns < 0, 0, group.encode[:, columns])
        self.encode = send((whole.astype(np.float32) / 32768).astype(np.float16), device)
