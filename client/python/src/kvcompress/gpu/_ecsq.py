# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Payloads of `ecsq` on the host: all that can be checked before a device reads them.

What only the entropy decoder sees the kernels check. Blocks are checked as arrays, since a long
cache has ten thousands of them.
"""

import struct
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from kvcompress.gpu._place import Output
from kvcompress.payload import PayloadError
from kvcompress.payload._codec import Entry
from kvcompress.payload._ecsq import cut, head_parts, matrix, read_fields
from kvcompress.payload._ecsq_block import BLOCK_HEADER, Fields, require

COLUMNS = 24
"""Numbers of a block: byte of the states, words, bytes of escapes and of low bits, bytes between
these, heads, tokens, integer sinks, first token, place in the scratch memory, middle and table of
the norms, middle and table of the classes, table and shift of the means, tensor, first head, bytes
of exceptions and where they begin. Of `klt` also the tables of the offsets and of the reflectors,
the place of its bases, and whether nothing else of it is wanted; else 0."""

TENSOR_COLUMNS = 12
"""Numbers of a tensor: flags, sinks, their shift, recent tokens, their shift, bits of the step,
channels of a head, tokens, first rotated channel, rotated pairs, their shift, first angle."""

_Table = npt.NDArray[np.int64]
_HEADER = np.dtype([("sizes", "<u4", 4), ("norm_middle", "<u2"), ("side", "u1", 6)])


_FRONT = 1 << 20  # bytes, of which the header of any payload takes less


class EcsqPayload:
    """A payload of mode 1.

    Attributes:
        output: Where its elements go.
        fields: Its header.
        row: Of the tensor, as kernels take it, with 0 as its first angle.
        blocks: i64 [blocks, COLUMNS] of the blocks with a token of the range. Bytes count from the
            payload's first one, and tensor and place in the scratch memory are 0.
        numbers: How many numbers each of them needs of the scratch memory.
    """

    def __init__(self, data: memoryview, output: Output) -> None:
        """Reads the payload of an output.

        Raises:
            PayloadError: It breaks a rule.
        """
        self.output, entry = output, output.entry
        payload = data[entry.begin : entry.end]
        try:
            self.fields, begin = self._read_fields(bytes(payload[:_FRONT]), entry)
        except PayloadError as error:
            raise PayloadError(
                f"the payload of {entry.codec} has a header that breaks the format",
                tensor=entry.name,
            ) from error
        _, tokens, self.channels = matrix(entry.shape)
        self.row = tensor_row(self.fields, tokens, self.channels)
        self._read(payload, begin)

    def _read_fields(self, front: bytes, entry: Entry) -> tuple[Fields, int]:
        """Reads the header, and where blocks begin."""
        return read_fields(front, entry)

    def _read(self, payload: memoryview, begin: int) -> None:
        """Reads the headers of blocks, and keeps what is wanted of them."""
        entry = self.output.entry
        shapes = block_shapes(*matrix(entry.shape))
        begins = read_begins(payload, begin, len(shapes), BLOCK_HEADER.size, entry)
        raw = read_rows(payload, begins, BLOCK_HEADER.size)
        whole, good = read_blocks(raw, begins, BLOCK_HEADER.size, shapes, self.fields, entry)
        require_blocks(good & (raw[:, 23] == 0), begins, entry)
        wanted = self.touched(whole)
        self.blocks, self.begins = whole[wanted], begins[wanted]
        self.numbers = count_numbers(self.blocks, self.channels, self.fields)

    def touched(self, blocks: _Table) -> npt.NDArray[np.bool_]:
        """Which blocks have a token of the range."""
        first, end = self.output.place[12], self.output.place[13]
        found: npt.NDArray[np.bool_] = blocks[:, 8] < end
        return found & (blocks[:, 8] + blocks[:, 6] > first)


def count_numbers(blocks: _Table, channels: int, fields: Fields) -> _Table:
    """How many numbers blocks need for classes, means, norms and quanta."""
    heads, count, sinks = (blocks[:, i] for i in (5, 6, 7))
    numbers: _Table = heads * channels * (2 + count - sinks)
    return numbers + heads * count * (fields.flags & 1)


def tensor_row(fields: Fields, tokens: int, channels: int) -> list[int]:
    """What kernels take of a header."""
    turn = fields.rotation
    rotated = (0, 0, 0) if turn is None else (turn.first, turn.pairs, turn.shift)
    shifts = (fields.sinks, fields.sink_shift, fields.recent, fields.recent_shift)
    step = int(fields.step.view(np.int32))
    return [fields.flags, *shifts, step, channels, tokens, *rotated, 0]


def block_shapes(heads: int, tokens: int, channels: int) -> _Table:
    """Of each block in order: its first head, heads, first token, and tokens."""
    most = min(1024, 2**18 // channels)
    if tokens <= most:
        parts = np.array(list(cut(heads, head_parts(heads, tokens, channels))), np.int64)
        rest = np.tile(np.array([0, tokens]), (len(parts), 1))
        return np.hstack([parts, rest])
    parts = np.array(list(cut(tokens, -(-tokens // most))), np.int64)
    first = np.repeat(np.arange(heads), len(parts))
    return np.column_stack([first, np.ones_like(first), np.tile(parts, (heads, 1))])


def read_begins(payload: memoryview, position: int, count: int, least: int, entry: Entry) -> _Table:
    """Where so many blocks of more than `least` bytes begin, which end with the payload."""
    begins, read = [], struct.Struct("<I").unpack_from
    last = len(payload) - least
    for _ in range(count):
        require(position <= last, entry, f"the payload of {entry.codec} ends early")
        begins.append(position)
        size = read(payload, position)[0]
        require(size > least, entry, f"{entry.codec} has a block of {size} bytes")
        position += size
    require(
        position == len(payload),
        entry,
        f"the blocks of {entry.codec} have {position} bytes, and the payload {len(payload)}",
    )
    return np.array(begins, np.int64)


def read_rows(payload: memoryview, begins: _Table, size: int) -> npt.NDArray[np.uint8]:
    """So many bytes from each of the places on, which the payload has."""
    found: npt.NDArray[np.uint8] = np.frombuffer(payload, "u1")[begins[:, None] + np.arange(size)]
    return found


def require_blocks(good: npt.NDArray[np.bool_], begins: _Table, entry: Entry) -> None:
    """Raises PayloadError unless all blocks are good."""
    if not good.all():
        block = int(np.argmin(good))
        raise PayloadError(
            f"the payload of {entry.codec} has a block {block}, at byte {begins[block]}, whose "
            "header breaks the format",
            tensor=entry.name,
        )


def read_blocks(
    raw: npt.NDArray[np.uint8],
    begins: _Table,
    front: _Table | int,
    shapes: _Table,
    fields: Fields,
    entry: Entry,
) -> tuple[_Table, npt.NDArray[np.bool_]]:
    """Reads and checks what the headers of `ecsq` and `klt` share.

    Args:
        raw: The first bytes of the blocks, [blocks, 24 or more].
        begins: Where they begin, counted from the payload's first byte.
        front: Their bytes before the states.
        shapes: Of each block first head, heads, first token, and tokens.
        fields: The header of the payload; its flag 8 says that sinks are integers.
        entry: Of the payload.

    Returns:
        i64 [blocks, COLUMNS], and which blocks keep the rules.
    """
    at = begins + front
    headers = np.ascontiguousarray(raw[:, : BLOCK_HEADER.size]).view(_HEADER)[:, 0]
    size, words, escapes, exceptions = headers["sizes"].astype(np.int64).T
    norm_middle, side = headers["norm_middle"].astype(np.int64), headers["side"].astype(np.int64)
    norm_table, class_middle, class_table, mean_table, mean_shift, _ = side.T
    first_head, heads, first_token, tokens = shapes.T
    width = heads * matrix(entry.shape)[2]
    sinks = np.clip((fields.sinks if fields.flags & 8 else 0) - first_token, 0, tokens)
    states = 4 * np.minimum(width, 32)
    integers = (2 * heads + width) * sinks
    first_exception = at + states + 2 * words + escapes + integers
    low = begins + size - first_exception - exceptions
    good = (size <= 4 * width * tokens + 1024) & (low >= 0)
    good &= (norm_middle < 0x7F8) & (class_middle < 72) & (mean_shift <= 12)
    good &= np.maximum(np.maximum(norm_table, class_table), mean_table) < 28
    nothing = np.zeros_like(at)
    columns: Sequence[_Table] = (
        *(at, words, escapes, low, integers + exceptions, heads, tokens, sinks, first_token),
        *(nothing, norm_middle, norm_table, class_middle, class_table, mean_table, mean_shift),
        *(nothing, first_head, exceptions, first_exception),
        *[nothing] * 4,
    )
    return np.column_stack(columns), good
