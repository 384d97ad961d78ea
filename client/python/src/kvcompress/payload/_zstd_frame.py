# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Which frames of Zstandard the format takes: "Zstandard frames" of FORMAT.md.

Versions of the library differ in what they refuse, and in what they make of what they do not.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ._zstd_tables import (
    BackwardBits,
    FseTable,
    HuffmanLengths,
    fse_table,
    take_fse_table,
    take_huffman_lengths,
)


def _ranges(base: int, bits: Sequence[int]) -> list[tuple[int, int]]:
    """Returns the first value of each code, and the bits that are added to it."""
    ranges = []
    for width in bits:
        ranges.append((base, width))
        base += 1 << width
    return ranges


_HIGH_BITS = (7, 8, 9, 10, 11, 12, 13, 14, 15, 16)
_LITERAL_LENGTHS = _ranges(0, (*[0] * 16, 1, 1, 1, 1, 2, 2, 3, 3, 4, 6, *_HIGH_BITS))
_MATCH_LENGTHS = _ranges(3, (*[0] * 32, 1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, *_HIGH_BITS))


@dataclass(frozen=True)
class _Kind:
    """What the tables of one part of a sequence may be."""

    max_log: int
    symbols: int
    default: FseTable


_KINDS = (
    _Kind(9, 36, fse_table(6, [4, 3, *[2] * 11, 1, 1, 1, *[2] * 9, 3, 2, *[1] * 5, *[-1] * 4])),
    _Kind(8, 32, fse_table(5, [*[1] * 6, 2, 2, 2, *[1] * 15, *[-1] * 5])),
    _Kind(9, 53, fse_table(6, [1, 4, 3, *[2] * 6, *[1] * 37, *[-1] * 7])),
)


def check(frame: bytes, size: int) -> None:
    """Checks a frame whose content has `size` bytes.

    Raises:
        ValueError: It breaks a rule.
    """
    _Frame(frame, size).check()


class _Frame:
    """Reads a frame from its front, and counts its content."""

    def __init__(self, frame: bytes, size: int) -> None:
        self._bytes = frame
        self._size = size
        self._done = 0
        self._lengths: HuffmanLengths | None = None
        self._tables: list[FseTable | None] = [None, None, None]
        self._recent = [1, 4, 8]

    def check(self) -> None:
        """Checks all of it."""
        if self._take(4) != b"\x28\xb5\x2f\xfd":
            raise ValueError("a frame has another magic number")
        field = (self._size >= 256) + (self._size >= 65792)
        if self._number(1) != field << 6 | 0x20:
            raise ValueError("a frame's descriptor is not the one of its size")
        if self._number(1 << field) + (256 if field == 1 else 0) != self._size:
            raise ValueError("a frame has another size")
        last = False
        while not last:
            header = self._number(3)
            last = header % 2 == 1
            self._check_block(header >> 1 & 3, header >> 3)
        if self._bytes or self._done != self._size:
            raise ValueError("a frame does not end with its content")

    def _take(self, count: int) -> bytes:
        """Takes bytes from the front."""
        taken, self._bytes = self._bytes[:count], self._bytes[count:]
        if len(taken) != count:
            raise ValueError("a frame is cut off")
        return taken

    def _number(self, count: int) -> int:
        return int.from_bytes(self._take(count), "little")

    def _produce(self, count: int) -> None:
        """Counts content."""
        self._done += count
        if self._done > self._size:
            raise ValueError("a frame has more content than it says")

    def _check_block(self, kind: int, size: int) -> None:
        """Checks one block after its header."""
        if kind == 0:
            self._take(size)
            self._produce(size)
        elif kind == 1:
            self._take(1)
            if size == 0:
                raise ValueError("a block is empty")
            self._produce(size)
        elif kind == 2:
            if size > self._size:
                raise ValueError("a block is larger than the content")
            rest = self._bytes[size:]
            self._bytes = self._take(size)
            self._check_sequences(self._take_literals())
            self._bytes = rest
        else:
            raise ValueError("a block has the reserved type")

    def _take_literals(self) -> int:
        """Checks the literals of a block; returns their number."""
        first = self._bytes[0] if self._bytes else 0
        kind, form = first & 3, first >> 2 & 3
        if kind < 2:
            width = (1, 2, 1, 3)[form]
            count = self._number(width) >> (3 if width == 1 else 4)
            self._check_room(count)
            self._take(1 if kind else count)
            return count
        header = self._number((3, 3, 4, 5)[form])
        width = (10, 10, 14, 18)[form]
        count = header >> 4 & ((1 << width) - 1)
        self._check_room(count)
        if count == 0:
            raise ValueError("no literals are compressed")
        streams = self._take(header >> (4 + width))
        if kind == 2:
            self._lengths, streams = take_huffman_lengths(streams)
        if self._lengths is None:
            raise ValueError("the tree of no block before is used")
        counts, sizes = [count], [len(streams)]
        if form:
            part = -(-count // 4)
            counts = [part, part, part, count - 3 * part]
            sizes = [int.from_bytes(streams[i : i + 2], "little") for i in (0, 2, 4)]
            streams = streams[6:]
            sizes.append(len(streams) - sum(sizes))
            if count < 12 or sizes[3] < 0:
                raise ValueError("four streams of literals break a rule")
        for stream_size, symbols in zip(sizes, counts, strict=True):
            self._lengths.check_stream(streams[:stream_size], symbols)
            streams = streams[stream_size:]
        return count

    def _check_room(self, literals: int) -> None:
        if literals > self._size - self._done:
            raise ValueError("a block has more literals than content")

    def _check_sequences(self, literals: int) -> None:
        """Checks what follows the literals of a block."""
        count = self._number(1)
        if count == 255:
            count = self._number(2) + 0x7F00
        elif count >= 128:
            count = count - 128 << 8 | self._number(1)
            if count < 128:
                raise ValueError("a number of sequences is longer than needed")
        if count == 0:
            if self._bytes or not literals:
                raise ValueError("a block without sequences breaks a rule")
            self._produce(literals)
            return
        modes = self._number(1)
        if modes & 3:
            raise ValueError("reserved bits of a block are set")
        literal, offset, match = (
            self._take_table(part, modes >> shift & 3) for part, shift in enumerate((6, 4, 2))
        )
        self._check_stream(literals, count, literal, offset, match)

    def _take_table(self, part: int, mode: int) -> FseTable:
        """Reads a table as its mode says, and keeps it for the blocks that follow."""
        kind, inherited = _KINDS[part], self._tables[part]
        if mode == 0:
            table = kind.default
        elif mode == 1:
            symbol = self._number(1)
            if symbol >= kind.symbols:
                raise ValueError("a symbol of a sequence is unknown")
            table = FseTable(0, [(symbol, 0, 0)])
        elif mode == 2:
            table, self._bytes = take_fse_table(self._bytes, kind.max_log, kind.symbols)
        elif inherited is None:
            raise ValueError("the table of no block before is used")
        else:
            table = inherited
        self._tables[part] = table
        return table

    def _check_stream(
        self, literals: int, count: int, literal: FseTable, offset: FseTable, match: FseTable
    ) -> None:
        """Checks the sequences of a block, and the literals after the last."""
        bits = BackwardBits(self._bytes)
        read, states = bits.read, [bits.read(table.log) for table in (literal, offset, match)]
        for left in range(count, 0, -1):
            l_code, l_bits, l_base = literal.states[states[0]]
            o_code, o_bits, o_base = offset.states[states[1]]
            m_code, m_bits, m_base = match.states[states[2]]
            value = (1 << o_code) + read(o_code)
            base, width = _MATCH_LENGTHS[m_code]
            matched = base + read(width)
            base, width = _LITERAL_LENGTHS[l_code]
            copied = base + read(width)
            literals -= copied
            if literals < 0:
                raise ValueError("a sequence has more literals than its block")
            self._produce(copied)
            self._check_offset(value, copied == 0)
            self._produce(matched)
            # The last sequence has no next states.
            if left > 1:
                states[0] = l_base + read(l_bits)
                states[2] = m_base + read(m_bits)
                states[1] = o_base + read(o_bits)
        if bits.left:
            raise ValueError("a stream of sequences does not end with its last")
        self._produce(literals)

    def _check_offset(self, value: int, no_literals: bool) -> None:
        """Checks an offset, by its value in the stream, and remembers it."""
        index, offset = 3, value - 3
        if value <= 3:
            index = value - 1 + no_literals
            offset = self._recent[index] if index < 3 else self._recent[0] - 1
        if not 0 < offset <= self._done:
            raise ValueError("a match begins before the content")
        self._recent = [offset, *(self._recent[i] for i in range(3) if i != min(index, 2))]
