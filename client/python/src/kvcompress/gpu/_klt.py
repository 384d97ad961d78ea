# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Payloads of `klt` in mode 2 on the host: all that can be checked before a device reads them.

What only the entropy decoder sees the kernels check. A block with bases *owns* them: those that
follow may say that theirs are the same.
"""

import numpy as np
import numpy.typing as npt

from kvcompress.gpu._ecsq import (
    EcsqPayload,
    count_numbers,
    read_begins,
    read_blocks,
    read_rows,
    require_blocks,
)
from kvcompress.payload._codec import Entry
from kvcompress.payload._ecsq import MOST_CHANNELS, cut, matrix
from kvcompress.payload._ecsq_block import Fields, require
from kvcompress.payload._klt import KLT_BLOCK_HEADER, SAME_BASES, read_fields

GROUP_COLUMNS = 6
"""Numbers of a group of channels of a block: its block, first channel, channels, reflectors (-1
where the bases are those of another block), place of the reflectors among the numbers of the block,
and place of the basis among its bases."""

_MOST_REFLECTORS = 128
_GROUP = 256  # channels of a group, but for heads with more
_BLOCK = 1 << 20  # elements of a block at most
_NO_OFFSETS = 255
_TABLES = 28

_Table = npt.NDArray[np.int64]


class KltPayload(EcsqPayload):
    """A payload of mode 2.

    Attributes:
        blocks: Those of `EcsqPayload`, and the owners of their bases.
        groups: i64 [groups of all blocks, GROUP_COLUMNS].
        bases: How many numbers the bases of each block have.
        owner: Of each block, the number of the one that owns its bases.
    """

    def _read_fields(self, front: bytes, entry: Entry) -> tuple[Fields, int]:
        """Reads the header, and where blocks begin."""
        return read_fields(front, entry)

    def _read(self, payload: memoryview, begin: int) -> None:
        """Reads the headers of blocks, and keeps what is wanted of them."""
        entry = self.output.entry
        shapes = _shapes(payload, entry)
        begins = read_begins(payload, begin, len(shapes), KLT_BLOCK_HEADER, entry)
        raw = read_rows(payload, begins, KLT_BLOCK_HEADER)
        sizes = _group_sizes(shapes[:, 1], self.channels)
        front = KLT_BLOCK_HEADER + (sizes > 0).sum(1)
        # What is the trellis here says in `ecsq` that sinks are integers.
        fields = self.fields._replace(flags=self.fields.flags | 8)
        whole, good = read_blocks(raw, begins, front, shapes, fields, entry)
        good &= ((raw[:, 23] < _TABLES) | (raw[:, 23] == _NO_OFFSETS)) & (raw[:, 24] < _TABLES)
        require_blocks(good & (raw[:, 25:] == 0).all(1), begins, entry)
        # Now blocks are known to be within the payload.
        counts = _counts(payload, begins, sizes)
        same = counts[:, 0] == SAME_BASES
        few = (counts <= np.minimum(sizes, _MOST_REFLECTORS)).all(1)
        all_same = ((counts == SAME_BASES) | (sizes == 0)).all(1)
        good = np.where(same, all_same & (shapes[:, 2] > 0), few)
        require_blocks(good, begins, entry)
        whole[:, 20:22] = raw[:, 23:25]
        self._keep(whole, begins, counts, sizes, np.flatnonzero(~same))

    def _keep(
        self, whole: _Table, begins: _Table, counts: _Table, sizes: _Table, owners: _Table
    ) -> None:
        """Keeps the blocks with a token of the range, and of the owners of their bases these."""
        every = np.arange(len(whole))
        owner = owners[np.searchsorted(owners, every, side="right") - 1]
        touched = self.touched(whole)
        wanted = touched.copy()
        wanted[owner[touched]] = True
        whole[~touched, 23] = 1
        # Nothing of such a block is written: neither sinks nor exceptions.
        whole[~touched, 7] = whole[~touched, 18] = 0
        self.blocks, self.begins = whole[wanted], begins[wanted]
        self.owner = (np.cumsum(wanted) - 1)[owner[wanted]]
        self._count(counts[wanted], sizes[wanted])

    def _count(self, counts: _Table, sizes: _Table) -> None:
        """Finds where the reflectors and bases of groups are."""
        same = counts[:, :1] == SAME_BASES
        counts = np.where(same, 0, counts)
        integers = counts * sizes - counts * (counts - 1) // 2
        heads, tokens, sinks = (self.blocks[:, i] for i in (5, 6, 7))
        numbers = count_numbers(self.blocks, self.channels, self.fields)
        numbers += heads * self.channels * (tokens - sinks) + tokens + counts.sum(1)
        places = numbers[:, None] + np.cumsum(integers, 1) - integers
        self.numbers: _Table = numbers + integers.sum(1)
        squares = sizes * sizes
        self.bases: _Table = squares.sum(1)
        columns = [
            np.broadcast_to(np.arange(len(sizes))[:, None], sizes.shape),
            np.cumsum(sizes, 1) - sizes,
            sizes,
            np.where(same, -1, counts),
            places,
            np.cumsum(squares, 1) - squares,
        ]
        self.groups: _Table = np.stack(columns, 2)[sizes > 0]


def _shapes(payload: memoryview, entry: Entry) -> _Table:
    """Of each block in order: its first head, heads, first token, and tokens."""
    heads, tokens, channels = matrix(entry.shape)
    parts = -(-heads // (MOST_CHANNELS // channels))
    most = min(1024, _BLOCK // (-(-heads // parts) * channels))
    cuts = -(-tokens // most)
    # Before memory is taken for them.
    fits = parts * cuts * KLT_BLOCK_HEADER < len(payload)
    require(fits, entry, f"the payload of {entry.codec} ends early")
    of_heads = np.array(list(cut(heads, parts)), np.int64)
    of_tokens = np.array(list(cut(tokens, cuts)), np.int64)
    return np.hstack([np.repeat(of_heads, cuts, 0), np.tile(of_tokens, (parts, 1))])


def _group_sizes(heads: _Table, channels: int) -> _Table:
    """Channels of the groups of blocks with so many heads, [blocks, groups], 0 for none."""
    per = max(1, _GROUP // channels)
    first = per * np.arange(-(-int(heads.max()) // per))
    sizes: _Table = np.clip(heads[:, None] - first, 0, per) * channels
    return sizes


def _counts(payload: memoryview, begins: _Table, sizes: _Table) -> _Table:
    """The numbers of reflectors of groups, [blocks, groups], 0 where there is no group."""
    at = begins[:, None] + KLT_BLOCK_HEADER + np.arange(sizes.shape[1])
    there = sizes > 0
    found: _Table = np.frombuffer(payload, "u1")[np.where(there, at, 0)].astype(np.int64)
    return np.where(there, found, 0)
