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

COLUMNS = 20
"""Numbers of a block: byte of the states, words, bytes of escapes and of low bits, bytes between
these, heads, tokens, integer sinks, first token, place in the scratch memory, middle and table of
the norms, middle and table of the classes, table and shift of the means, tensor, first head, bytes
of exceptions and where they begin."""

TENSOR_COLUMNS = 12
"""Numbers of a tensor: flags, sinks, their shift, recent tokens, their shift, bits of the step,
channels of a head, tokens, first rotated channel, rotated pairs, their shift, first angle."""

_Table = npt.NDArray[np.int64]
_HEADER = np.dtype([("sizes", "<u4", 4), ("norm_middle", "<u2"), ("side", "u1", 6)])


_FRONT = 1 << 20  # bytes, of which the header of any payload takes less


class EcsqPayload:
    """A payload of mode 1.

    Attributes:
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
            self.fields, begin = read_fields(bytes(payload[:_FRONT]), entry)
        except PayloadError as error:
            raise PayloadError(
                f"the payload of {entry.codec} has a header that breaks the format",
                tensor=entry.name,
            ) from error
        _, tokens, channels = matrix(entry.shape)
        self.row = _tensor_row(self.fields, tokens, channels)
        shape = _shapes(*matrix(entry.shape))
        begins = _begins(payload, begin, len(shape), entry)
        whole = _read_blocks(payload, begins, shape, channels, self.fields, entry)
        first, end = output.place[12], output.place[13]
        wanted = (whole[:, 8] < end) & (whole[:, 8] + whole[:, 6] > first)
        self.blocks, self.begins = whole[wanted], begins[wanted]
        heads, count, sinks = (self.blocks[:, i] for i in (5, 6, 7))
        self.numbers = heads * channels * (2 + count - sinks)
        self.numbers += heads * count * (self.fields.flags & 1)


def _tensor_row(fields: Fields, tokens: int, channels: int) -> list[int]:
    """What kernels take of a header."""
    turn = fields.rotation
    rotated = (0, 0, 0) if turn is None else (turn.first, turn.pairs, turn.shift)
    shifts = (fields.sinks, fields.sink_shift, fields.recent, fields.recent_shift)
    step = int(fields.step.view(np.int32))
    return [fields.flags, *shifts, step, channels, tokens, *rotated, 0]


def _shapes(heads: int, tokens: int, channels: int) -> _Table:
    """Of each block in order: its first head, heads, first token, and tokens."""
    most = min(1024, 2**18 // channels)
    if tokens <= most:
        parts = np.array(list(cut(heads, head_parts(heads, tokens, channels))), np.int64)
        rest = np.tile(np.array([0, tokens]), (len(parts), 1))
        return np.hstack([parts, rest])
    parts = np.array(list(cut(tokens, -(-tokens // most))), np.int64)
    first = np.repeat(np.arange(heads), len(parts))
    return np.column_stack([first, np.ones_like(first), np.tile(parts, (heads, 1))])


def _begins(payload: memoryview, position: int, count: int, entry: Entry) -> _Table:
    """Where so many blocks begin, which end with the payload."""
    begins, read = [], struct.Struct("<I").unpack_from
    last = len(payload) - BLOCK_HEADER.size
    for _ in range(count):
        require(position <= last, entry, f"the payload of {entry.codec} ends early")
        begins.append(position)
        size = read(payload, position)[0]
        require(size > BLOCK_HEADER.size, entry, f"{entry.codec} has a block of {size} bytes")
        position += size
    require(
        position == len(payload),
        entry,
        f"the blocks of {entry.codec} have {position} bytes, and the payload {len(payload)}",
    )
    return np.array(begins, np.int64)


def _read_blocks(
    payload: memoryview, begins: _Table, shapes: _Table, channels: int, fields: Fields, entry: Entry
) -> _Table:
    """Reads and checks the headers of all blocks."""
    raw = np.frombuffer(payload, "u1")[begins[:, None] + np.arange(BLOCK_HEADER.size)]
    headers = np.ascontiguousarray(raw).view(_HEADER)[:, 0]
    size, words, escapes, exceptions = headers["sizes"].astype(np.int64).T
    norm_middle, side = headers["norm_middle"].astype(np.int64), headers["side"].astype(np.int64)
    norm_table, class_middle, class_table, mean_table, mean_shift, zero = side.T
    first_head, heads, first_token, tokens = shapes.T
    width = heads * channels
    sinks = np.clip((fields.sinks if fields.flags & 8 else 0) - first_token, 0, tokens)
    states = 4 * np.minimum(width, 32)
    integers = (2 * heads + width) * sinks
    low = size - BLOCK_HEADER.size - states - 2 * words - escapes - integers - exceptions
    good = (size <= 4 * width * tokens + 1024) & (low >= 0) & (zero == 0)
    good &= (norm_middle < 0x7F8) & (class_middle < 72) & (mean_shift <= 12)
    good &= np.maximum(np.maximum(norm_table, class_table), mean_table) < 28
    if not good.all():
        block = int(np.argmin(good))
        raise PayloadError(
            f"the payload of {entry.codec} has a block {block}, at byte {begins[block]}, whose "
            "header breaks the format",
            tensor=entry.name,
        )
    at = begins + BLOCK_HEADER.size
    first_exception = at + states + 2 * words + escapes + integers
    nothing = np.zeros_like(at)
    columns: Sequence[_Table] = (
        *(at, words, escapes, low, integers + exceptions, heads, tokens, sinks, first_token),
        *(nothing, norm_middle, norm_table, class_middle, class_table, mean_table, mean_shift),
        *(nothing, first_head, exceptions, first_exception),
    )
    return np.column_stack(columns)
