# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""How the payload of a group is decoded: parts of its blocks, and tiles of their rows."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kvcompress.gpu._basis import FIXED, Basis
from kvcompress.gpu._payload import LANES, Payload
from kvcompress.gpu._place import Range, cut_by_size
from kvcompress.gpu._upload import padded

# Classes from here on often have levels beyond 127; a trellis makes levels twice as large.
_HIGH_CLASS, _HIGH_CLASS_TRELLIS = 36, 32
_TILE = 7  # numbers of a tile of rows

Numbers = npt.NDArray[np.int64]


class Rows(NamedTuple):
    """Blocks that are decoded together, by number, and how many tokens they have."""

    blocks: Numbers
    tokens: int


class GroupPlan:
    """How the blocks of a payload are decoded within so much memory.

    Attributes:
        low_width: Components of a row, whole steps of the product.
        high_width: Those at its front that may have levels of more than 8 bits.
        chunks: Blocks that hold a token of the range, in parts.
    """

    def __init__(self, basis: Basis, payload: Payload, tokens: Range, size: int, most: int) -> None:
        """Plans for a payload of `size` bytes and buffers of rows of `most` bytes.

        A block is decoded at once, even where it needs more.
        """
        self.basis, self.payload, self.tokens, self._most = basis, payload, tokens, most
        step, blocks = basis.tiling.components, payload.blocks
        wanted = np.flatnonzero(
            (blocks.token < tokens.end) & (blocks.token + blocks.tokens > tokens.first)
        )
        runs = int(blocks.runs[wanted].max(initial=0))
        self.low_width = max(1, -(-runs * LANES // step)) * step
        padded_classes = np.full(-(-len(payload.classes) // LANES) * LANES, -1000)
        padded_classes[: len(payload.classes)] = payload.classes
        self.classes = padded_classes.reshape(-1, LANES).max(1) + int(
            payload.offsets.max(initial=0)
        )
        bound = _HIGH_CLASS_TRELLIS if payload.trellis else _HIGH_CLASS
        large = np.flatnonzero(self.classes[:runs] >= bound)
        self.high_width = LANES * (int(large[-1]) + 1) if len(large) else 0
        row = self.low_width + max(1, self.high_width) + 4
        self.chunks = list(self._cut(wanted, most // row))
        self._size, self._wanted, self._row = size, wanted, row

    @property
    def scratch(self) -> int:
        """Bytes on the device, of buffers that are freed after the call."""
        rows = max((chunk.tokens for chunk in self.chunks), default=0)
        again = max((chunk.tokens for chunk in self.cut_exact(self._wanted)), default=0)
        return max(rows * self._row, again * self._exact_row) + self._tables()

    @property
    def _exact_row(self) -> int:
        """Bytes of a row of the exact path: levels in 32 bits and in binary64, and sums."""
        return 12 * self.low_width + 8 * self.basis.tiling.pairs + 4

    def _tables(self) -> int:
        """Bytes of all that does not go with the rows of a part."""
        basis, payload, tiling = self.basis, self.payload, self.basis.tiling
        wanted = self._wanted
        vectors = 4 * 8 * 2 * tiling.pairs * basis.basis_width
        angles = 8 * (self.tokens.end - self.tokens.first) * basis.angles
        of_tokens = 5 * len(payload.offsets)
        # As many tiles as there are rows of whole tiles, and one more of each block that is cut.
        tiles = sum(len(self.tiles(chunk.blocks)) for chunk in self.chunks) + len(wanted)
        of_blocks = 88 * len(wanted) + (8 * _TILE + 4) * tiles
        of_pairs = 8 * (FIXED + 2 * tiling.pairs) * (basis.width // tiling.pairs)
        of_components = 8 * basis.group.components + 4 * LANES
        elements = sum(each.size for each in payload.sinks)
        elements += sum(len(each.elements) for each in payload.exceptions)
        patches = (8 + 4) * elements
        parts = 16 * (12 + 2 * len(self.chunks))
        fixed = vectors + of_pairs + of_components + patches + parts
        return int(padded(self._size) + angles + of_tokens + of_blocks + fixed)

    def cut_exact(self, wanted: Numbers) -> Iterator[Rows]:
        """Cuts blocks for the exact path, whose rows need more."""
        return self._cut(wanted, self._most // self._exact_row)

    def _cut(self, wanted: Numbers, most: int) -> Iterator[Rows]:
        """Cuts blocks into parts of at most so many rows, but of one block at least."""
        for part, tokens in cut_by_size(self.payload.blocks.tokens[wanted].tolist(), most):
            yield Rows(wanted[part], tokens)

    def tiles(self, wanted: Numbers) -> Numbers:
        """Tiles of the rows of these blocks that are in the range, i64 [tiles, 7].

        Blocks of a batch that follow one another share tiles. A tile is its first row, its rows,
        its first token in the range, its batch, its components, and the places of its first and
        last block among these.
        """
        blocks, most = self.payload.blocks, self.basis.tiling.rows
        tokens, batches = blocks.tokens[wanted], blocks.batch[wanted]
        rows = np.cumsum(tokens) - tokens
        first = np.maximum(blocks.token[wanted], self.tokens.first)
        end = np.minimum(blocks.token[wanted] + tokens, self.tokens.end)
        begins = np.flatnonzero(
            (np.diff(wanted, prepend=-2) != 1) | (np.diff(batches, prepend=-1) != 0)
        )
        counts = np.add.reduceat(end - first, begins) if len(begins) else begins
        per_run = -(-counts // most)
        run = np.repeat(np.arange(len(begins)), per_run)
        within = most * (np.arange(len(run)) - np.repeat(np.cumsum(per_run) - per_run, per_run))
        begin = begins[run]
        at = rows[begin] + first[begin] - blocks.token[wanted][begin] + within
        count = np.minimum(most, counts[run] - within)
        one, last = (np.searchsorted(rows, each, "right") - 1 for each in (at, at + count - 1))
        runs = np.zeros(len(at), np.int64)
        for further in range(int((last - one).max(initial=-1)) + 1):
            runs = np.maximum(runs, blocks.runs[wanted][np.minimum(one + further, last)])
        where = first[begin] - self.tokens.first + within
        return np.stack([at, count, where, batches[begin], LANES * runs, one, last], 1)
