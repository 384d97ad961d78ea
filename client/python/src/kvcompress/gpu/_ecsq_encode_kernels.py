# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Triton kernels that encode the integers of blocks of `ecsq`, section 5 of FORMAT.md.

The first chooses tables for classes, means and norms; the second encodes a block with 32 lanes from
its last row to its first; the third puts the parts of blocks together. Blocks and tensors are rows
as `_ecsq_quantize_kernels` has them, and `scratch` is what its last kernel made. A block has as
much room for words, escapes and low bits as its numbers can need, in the order of `scratch`.
"""

# Constants of a launch are in capitals, and Triton gives types to what it compiles.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
# ruff: noqa: ANN001, ANN202, N803

import triton  # type: ignore[import-not-found,unused-ignore]
import triton.language as tl  # type: ignore[import-not-found,unused-ignore]

from kvcompress.gpu._ecsq_kernels import number, shift_of
from kvcompress.gpu._encode_kernels import copy_bytes, push, write_escapes, write_low


@triton.jit
def _fit(values, count, middle, shift, costs, borders, BLOCK: tl.constexpr):
    """The table that codes numbers in the fewest bits, and those in 256ths, with low bits."""
    squares = tl.sum(tl.zeros([BLOCK], tl.int64), 0)
    for begin in range(0, count, BLOCK):
        i = begin + tl.arange(0, BLOCK)
        far = (tl.load(values + i, mask=i < count, other=middle) - middle) >> shift
        far = far.to(tl.int64)
        squares += tl.sum(far * far, 0)
    variance = squares.to(tl.float64) / (count + tl.zeros_like(squares)).to(tl.float64)
    nearest = tl.sum((tl.load(borders + tl.arange(0, 128)) <= variance).to(tl.int32), 0)
    nearest = tl.minimum(nearest, 27)
    k = tl.arange(0, 16)
    first = tl.maximum(nearest - 3, 0)
    live = first + k <= tl.minimum(nearest + 5, 27)
    row = costs + tl.minimum(first + k, 27) * 256
    total = tl.zeros([16], tl.int64) + 256 * shift * count.to(tl.int64)
    for begin in range(0, count, BLOCK):
        i = begin + tl.arange(0, BLOCK)
        far = (tl.load(values + i, mask=i < count, other=middle) - middle) >> shift
        far = tl.where((far < -127) | (far > 127), -128, far)
        cost = tl.load(row[:, None] + (far + 128)[None, :], mask=(i < count)[None, :], other=0)
        total += tl.sum(cost.to(tl.int64), 1)
    total = tl.where(live, total, 1 << 62)
    least = tl.min(total, 0)
    return first + tl.min(tl.where(total == least, k, 16), 0), least


@triton.jit
def fit_kernel(
    scratch,
    blocks,
    tensors,
    costs,  # i32 [28, 256], of the numbers from -127 on; first of what no table has
    borders,  # f64 [128], variances from which on a class is the next; infinity behind the last
    fits,  # i32 [blocks, 6]: middle and table of norms, of classes; table and shift of means
    BLOCK: tl.constexpr,
):
    """Chooses a table in each program: of classes, of means, or of norms."""
    block = blocks + tl.program_id(0).to(tl.int64) * 24
    tensor = tensors + tl.load(block + 16) * 12
    fits += tl.program_id(0) * 6
    which = tl.program_id(1)
    channels = number(block, 5) * number(tensor, 6)
    norms = number(block, 5) * number(block, 6) * (number(tensor, 0) & 1)
    values = scratch + tl.load(block + 9) + which * channels
    count = tl.where(which == 2, norms, channels)
    if count > 0:
        middle = count * 0
        if which != 1:
            total = tl.sum(tl.zeros([BLOCK], tl.int64), 0)
            for begin in range(0, count, BLOCK):
                i = begin + tl.arange(0, BLOCK)
                total += tl.sum(tl.load(values + i, mask=i < count, other=0).to(tl.int64), 0)
            middle = ((total + count // 2) // count).to(tl.int32)
        shift = count * 0
        table, cost = _fit(values, count, middle, shift, costs, borders, BLOCK)
        going = tl.where(which == 1, 1, 0)
        while going != 0:
            other, less = _fit(values, count, middle, shift + 1, costs, borders, BLOCK)
            better = less < cost
            table, cost = tl.where(better, other, table), tl.minimum(cost, less)
            shift += better.to(tl.int32)
            going = (better & (shift < 12)).to(tl.int32)
        at = tl.where(which == 0, 2, tl.where(which == 1, 4, 0))
        tl.store(fits + at, tl.where(which == 1, table, middle))
        tl.store(fits + at + 1, tl.where(which == 1, shift, table))


@triton.jit
def _split(own_class, shift, live):
    """The table of each lane, below 28, and its low bits; none in lanes that are not live."""
    e = own_class + 4 * shift
    low = tl.where(e < 28, 0, (e - 24) >> 2)
    return e - 4 * low, tl.where(live, low, 0)


@triton.jit
def _count_low(block, tensor, classes, channels):
    """How many low bits the quanta of a block have."""
    lane = tl.arange(0, 32)
    first = number(block, 8)
    begin, end = first + number(block, 7), first + number(block, 6)
    behind = tl.minimum(tl.maximum(begin, number(tensor, 1)), end)
    recent = tl.minimum(tl.maximum(behind, number(tensor, 7) - number(tensor, 3)), end)
    total = tl.zeros_like(lane)
    for run in range((channels + 31) // 32):
        live = 32 * run + lane < channels
        own_class = tl.load(classes + 32 * run + lane, mask=live, other=0)
        _, sink = _split(own_class, number(tensor, 2), live)
        _, plain = _split(own_class, 0, live)
        _, late = _split(own_class, number(tensor, 4), live)
        total += sink * (behind - begin) + plain * (recent - behind) + late * (end - recent)
    return tl.sum(total, 0)


@triton.jit
def _encode_row(state, streams, quantum, table, low, has_low, live, PTX: tl.constexpr):
    """Encodes a row.

    state: of the lanes; where words, escapes and low bits begin.
    streams: words, escapes, low bits; symbols and the largest of each table.
    """
    x, word_at, escape_at, low_at = state
    value = quantum >> low
    escaped = live & (tl.abs(value) > tl.load(streams[4] + table))
    symbol = tl.load(streams[3] + table * 64 + tl.where(escaped | (live == 0), 63, value + 32))
    x, word_at = push(x, streams[0], word_at, symbol, live, PTX)
    if tl.max(escaped.to(tl.int32), 0) != 0:
        escape_at = write_escapes(streams[1], escape_at, value, escaped)
    if has_low:
        low_at = write_low(streams[2], low_at, quantum, low)
    return x, word_at, escape_at, low_at


@triton.jit
def _encode_numbers(state, streams, values, count, lanes, middle, table, shift, PTX: tl.constexpr):
    """Encodes a list of numbers, as many in a row as there are lanes, from its last row on."""
    lane = tl.arange(0, 32)
    rows = (count + lanes - 1) // lanes
    for k in range(rows):
        place = (rows - 1 - k) * lanes + lane
        live = (lane < lanes) & (place < count)
        value = tl.load(values + place, mask=live, other=0) - middle
        low = tl.where(live, shift, 0)
        tables = tl.zeros_like(lane) + table
        state = _encode_row(state, streams, value, tables, low, shift > 0, live, PTX)
    return state


@triton.jit
def encode_block_kernel(
    scratch,
    blocks,
    tensors,
    fits,
    symbols,  # i32 [28, 64]: f << 16 | first of the symbols from -32 on, and of the escape
    largest,  # i32 [28], the largest symbol of each table
    words,  # i16, of all blocks
    escapes,  # u8
    lows,  # i32, zeros before
    states,  # i32 [blocks, 32]
    sizes,  # i32 [blocks, 3]: words, bytes of escapes and of low bits
    PTX: tl.constexpr,
):
    """Encodes a block in each program."""
    index = tl.program_id(0).to(tl.int64)
    block = blocks + index * 24
    tensor = tensors + tl.load(block + 16) * 12
    fits += index * 6
    place = tl.load(block + 9)
    channels = number(block, 5) * number(tensor, 6)
    norms = number(block, 5) * number(block, 6) * (number(tensor, 0) & 1)
    first, tokens, sinks = number(block, 8), number(block, 6), number(block, 7)
    room = 2 * channels + norms + (tokens - sinks) * channels
    classes = scratch + place
    means, codes = classes + channels, classes + 2 * channels
    quanta = codes + norms
    streams = (words + place, escapes + 6 * place, lows + place // 2 + 2 * index, symbols, largest)
    lane = tl.arange(0, 32)
    lanes = tl.minimum(channels, 32)
    shift = tl.load(fits + 5)
    low_bits = _count_low(block, tensor, classes, channels) + channels * shift
    state = (tl.zeros_like(lane) + 32768, tl.zeros_like(lane) + room, 6 * room, low_bits)
    for back in range((channels + 31) // 32):
        channel = 32 * ((channels + 31) // 32 - 1 - back) + lane
        live = channel < channels
        own_class = tl.load(classes + channel, mask=live, other=0)
        most = tl.maximum(number(tensor, 2), number(tensor, 4))
        has_low = tl.max(own_class, 0) + 4 * most >= 28
        for k in range(tokens - sinks):
            t = tokens - sinks - 1 - k
            table, low = _split(own_class, shift_of(tensor, first + sinks + t), live)
            quantum = tl.load(quanta + t * channels + channel, mask=live, other=0)
            state = _encode_row(state, streams, quantum, table, low, has_low, live, PTX)
    middle, table = tl.load(fits), tl.load(fits + 1)
    state = _encode_numbers(state, streams, codes, norms, lanes, middle, table, 0, PTX)
    state = _encode_numbers(
        state, streams, means, channels, lanes, 0, tl.load(fits + 4), shift, PTX
    )
    middle, table = tl.load(fits + 2), tl.load(fits + 3)
    state = _encode_numbers(state, streams, classes, channels, lanes, middle, table, 0, PTX)
    x, word_at, escape_at, _ = state
    tl.store(states + 32 * index + lane, x)
    tl.store(sizes + 3 * index, tl.max(room - word_at, 0))
    tl.store(sizes + 3 * index + 1, 6 * room - escape_at)
    tl.store(sizes + 3 * index + 2, (low_bits + 7) >> 3)


@triton.jit
def assemble_block_kernel(
    blocks,
    tensors,
    fits,
    words,  # u8, and all that follow, as bytes
    escapes,
    lows,
    states,
    sinks,
    exceptions,
    sizes,  # i32 [blocks, 3]
    rows,  # i64 [blocks, 3]: where the block goes, where its exceptions begin, and their bytes
    out,  # u8
    BLOCK: tl.constexpr,
):
    """Puts a part of a block together in each program."""
    index = tl.program_id(0).to(tl.int64)
    block = blocks + index * 24
    tensor = tensors + tl.load(block + 16) * 12
    place = tl.load(block + 9)
    channels = number(block, 5) * number(tensor, 6)
    norms = number(block, 5) * number(block, 6) * (number(tensor, 0) & 1)
    room = place + 2 * channels + norms + (number(block, 6) - number(block, 7)) * channels
    state_bytes = 4 * tl.minimum(channels, 32)
    word_bytes = 2 * tl.load(sizes + 3 * index)
    escape_bytes = tl.load(sizes + 3 * index + 1)
    low_bytes = tl.load(sizes + 3 * index + 2)
    sink_bytes = number(block, 7) * (2 * number(block, 5) + channels)
    exception_bytes = number(rows, 3 * index + 2)
    size = 24 + state_bytes + word_bytes + escape_bytes + sink_bytes + exception_bytes + low_bytes
    out += tl.load(rows + 3 * index)
    _write_header(out, (size, word_bytes // 2, escape_bytes, exception_bytes), fits + 6 * index)
    out += 24
    copy_bytes(out, states + 128 * index, state_bytes, BLOCK)
    out += state_bytes
    copy_bytes(out, words + 2 * room - word_bytes, word_bytes, BLOCK)
    out += word_bytes
    copy_bytes(out, escapes + 6 * room - escape_bytes, escape_bytes, BLOCK)
    out += escape_bytes
    copy_bytes(out, sinks + tl.load(block) + state_bytes, sink_bytes, BLOCK)
    out += sink_bytes
    copy_bytes(out, exceptions + tl.load(rows + 3 * index + 1), exception_bytes, BLOCK)
    out += exception_bytes
    copy_bytes(out, lows + 4 * (place // 2 + 2 * index), low_bytes, BLOCK)


@triton.jit
def _write_header(out, sizes, fits):
    """Writes the header of a block."""
    lane = tl.arange(0, 32)
    field = tl.where(lane < 4, sizes[0], tl.where(lane < 8, sizes[1], sizes[2]))
    field = tl.where(lane < 12, field, sizes[3])
    field = (field >> (8 * (lane & 3))) & 255
    middle = tl.load(fits)
    field = tl.where(lane == 16, middle & 255, tl.where(lane == 17, middle >> 8, field))
    own = tl.load(fits + lane - 17, mask=(lane > 17) & (lane < 23), other=0)
    tl.store(out + lane, tl.where(lane > 17, own, field).to(tl.uint8), mask=lane < 24)
