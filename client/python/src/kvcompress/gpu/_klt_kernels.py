# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Triton kernels that decode blocks of `klt`, section 5 of FORMAT.md, as far as `ecsq` differs.

The first decodes symbols to integers, with one program of 32 lanes for a block; the next two make
bases of reflectors; the last multiplies levels by them. What follows is that of `ecsq`. They read
nothing outside of a block, whatever it says. Blocks and tensors are rows as in `_ecsq_kernels`, and
groups of channels rows i64 [6], whose numbers `_klt` names. Of each block `scratch` has its
classes, means, norms, then products and levels [tokens without sinks, channels], offsets of tokens,
classes of reflectors, and these.
"""

# Constants of a launch are in capitals, and Triton gives types to what it compiles.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
# ruff: noqa: ANN001, ANN202, N803

import triton  # type: ignore[import-not-found,unused-ignore]
import triton.language as tl  # type: ignore[import-not-found,unused-ignore]

from kvcompress.gpu._ecsq_kernels import (
    close_block,
    number,
    open_block,
    read_numbers,
    read_row,
    read_side,
    with_low,
)
from kvcompress.gpu._entropy_kernel import level_of, split


@triton.jit
def _places(block, tensor):
    """How many channels and coded tokens a block has, and where its products and levels begin."""
    channels = number(block, 5) * number(tensor, 6)
    rows = number(block, 6) - number(block, 7)
    norms = number(block, 5) * number(block, 6) * (number(tensor, 0) & 1)
    products = 2 * channels + norms
    return channels, rows, products, products + rows * channels


@triton.jit
def _mark(state, bad):
    """The state of the decoder, broken where a lane found something."""
    x, word_at, escape_at, bit_at, wrong = state
    return (x, word_at, escape_at, bit_at, wrong | bad.to(tl.int32))


@triton.jit
def _sum_offsets(offsets, count, differences, state):
    """Makes offsets of their differences, of which there are as many or none; and their highest."""
    lane = tl.arange(0, 32)
    before = tl.zeros([], tl.int32)
    highest = tl.zeros([], tl.int32)
    for first in range(0, count, 32):
        live = first + lane < count
        step = tl.load(offsets + first + lane, mask=first + lane < differences, other=0)
        offset = before + tl.cumsum(step, 0)
        state = _mark(state, live & ((offset < -16) | (offset > 48)))
        before += tl.sum(step, 0)
        offset = tl.minimum(tl.maximum(offset, -16), 48)
        highest = tl.maximum(highest, tl.max(tl.where(live, offset, 0), 0))
        tl.store(offsets + first + lane, offset, mask=live)
    return highest, state


@triton.jit
def _reflectors_of(counts, group):
    """The number of reflectors of a group, 0 where the bases are those of another block."""
    found = tl.load(counts + group).to(tl.int32)
    return tl.where(found == 255, 0, found)


@triton.jit
def _spread_classes(counts, groups, block, width, classes, integers, state):
    """Stores to each integer of a reflector the class of it; returns how many integers there are.

    classes: differences, which are of one group after the other.
    """
    lane = tl.arange(0, 32)
    per = tl.maximum(256 // width, 1)
    at = tl.zeros([], tl.int32)
    place = tl.zeros([], tl.int32)
    for group in range(groups):
        size = tl.minimum(per, number(block, 5) - group * per) * width
        own_class = tl.zeros([], tl.int32) + 15
        for j in range(_reflectors_of(counts, group)):
            own_class += tl.load(classes + place)
            found = tl.zeros_like(lane) + own_class
            kept = tl.minimum(tl.maximum(found, 0), 71)
            state = _mark(state, found != kept)
            for i in range(0, size - j, 32):
                tl.store(integers + at + i + lane, kept, mask=i + lane < size - j)
            at += size - j
            place += 1
    return at, state


@triton.jit
def _read_reflectors(
    slots, streams, state, lanes, block, width, counts, groups, classes, PTX: tl.constexpr
):
    """Reads the reflectors of all groups: their classes, then their integers behind these."""
    lane = tl.arange(0, 32)
    total = tl.zeros([], tl.int32)
    for group in range(groups):
        total += _reflectors_of(counts, group)
    # Both of two neighbours are from 0 to 71.
    form = (number(block, 21), 0, 0, -71, 71)
    state = read_numbers(slots, streams, state, lanes, classes, total, form, PTX)
    tl.debug_barrier()
    integers = classes + total
    count, state = _spread_classes(counts, groups, block, width, classes, integers, state)
    tl.debug_barrier()
    for row in range((count + lanes - 1) // lanes):
        place = row * lanes + lane
        live = (lane < lanes) & (place < count)
        e = tl.load(integers + place, mask=live, other=0)
        table, low = split(e, 0, tl.zeros_like(lane), False)
        value, state = read_row(slots, table, live, streams, state, PTX)
        value, state = with_low(value, low, live, streams, state)
        bad = live & ((value < -32767) | (value > 32767))
        tl.store(integers + place, tl.where(bad, 0, value), mask=live)
        state = _mark(state, bad)
    return state


@triton.jit
def _read_levels(slots, streams, state, block, tensor, side, offsets, highest, PTX: tl.constexpr):
    """Reads the levels of all runs of 32 components."""
    lane = tl.arange(0, 32)
    channels, rows, _, at = _places(block, tensor)
    offsets += number(block, 7)
    trellis = (number(tensor, 0) & 8) != 0
    for run in range((channels + 31) // 32):
        component = 32 * run + lane
        live = component < channels
        own_class = tl.load(side + component, mask=live, other=0)
        has_low = tl.max(own_class, 0) + highest >= 28
        path = tl.zeros_like(lane)
        for t in range(rows):
            # Without a trellis its state stays even, and that has the same tables.
            table, low = split(own_class, tl.load(offsets + t), path, True)
            value, state = read_row(slots, table, live, streams, state, PTX)
            if has_low:
                value, state = with_low(value, low, live, streams, state)
            level, after = level_of(value, path, live, True)
            path = tl.where(trellis, after, path)
            level = tl.where(trellis, level, value)
            tl.store(side + at + t * channels + component, level, mask=live)
    return state


@triton.jit
def klt_entropy_kernel(
    data,  # u8, payloads
    blocks,
    tensors,
    slots,  # i32 [56, 2048], as entropy_kernel takes them
    scratch,  # i32
    found,  # i32 [blocks], set for a block that is broken
    PTX: tl.constexpr,
):
    """Decodes the integers of a block in each program; of some only those of the bases."""
    block = blocks + tl.program_id(0).to(tl.int64) * 24
    tensor = tensors + tl.load(block + 16) * 12
    heads, tokens, width = number(block, 5), number(block, 6), number(tensor, 6)
    channels, rows, products, levels = _places(block, tensor)
    lanes, streams, state = open_block(data, block, channels)
    side = scratch + tl.load(block + 9)
    norms = products - 2 * channels
    state = read_side(slots, streams, state, lanes, block, channels, side, norms, PTX)
    offsets = side + levels + rows * channels
    # Both of two neighbours are from -16 to 48.
    form = (number(block, 20), 0, 0, -64, 64)
    differences = tl.where(number(block, 20) == 255, 0, tokens)
    state = read_numbers(slots, streams, state, lanes, offsets, differences, form, PTX)
    # Lanes may be other threads than those that stored what is read next.
    tl.debug_barrier()
    highest, state = _sum_offsets(offsets, tokens, differences, state)
    per = tl.maximum(256 // width, 1)
    groups = (heads + per - 1) // per
    counts = data + tl.load(block) - groups
    state = _read_reflectors(
        slots, streams, state, lanes, block, width, counts, groups, offsets + tokens, PTX
    )
    tl.debug_barrier()
    if number(block, 23) == 0:
        state = _read_levels(slots, streams, state, block, tensor, side, offsets, highest, PTX)
        close_block(streams, state, found + tl.program_id(0))
    else:
        tl.store(found + tl.program_id(0), tl.max((state[4] != 0).to(tl.int32), 0))


@triton.jit
def _root(x):
    """The floor of the square root of an i64 below 2^62."""
    root = tl.sqrt(x.to(tl.float64)).to(tl.int64)
    root = tl.where(root * root > x, root - 1, root)
    return tl.where((root + 1) * (root + 1) <= x, root + 1, root)


@triton.jit
def klt_reflectors_kernel(groups, scratch, N: tl.constexpr):
    """Makes u of the integers k of a reflector, in place, in each program [group, reflector].

    N is a power of two from the channels of any group on.
    """
    group = groups + tl.program_id(0).to(tl.int64) * 6
    n, j = number(group, 2), tl.program_id(1)
    i = tl.arange(0, N)
    live = i < tl.where(j < number(group, 3), n - j, 0)
    at = scratch + tl.load(group + 4) + (j * n - j * (j - 1) // 2)
    k = tl.load(at + i, mask=live, other=0).to(tl.int64)
    root = _root(tl.sum(k * k, 0))
    first = live & (i == 0)
    v = tl.where(first, tl.where(k >= 0, k + root, k - root), k)
    squares = tl.sum(v * v, 0)
    step = tl.arange(0, 32)
    power = tl.full([32], 1, tl.int64) << tl.maximum(60 - 2 * step, 0).to(tl.int64)
    e = tl.sum(((step < 30) & (squares < power)).to(tl.int64), 0)
    # Where all are 0, u is too, and reflects nothing.
    length = tl.maximum(_root(squares << (2 * e)), 1)
    u = tl.minimum(((tl.abs(v) << (15 + e)) + (length >> 1)) // length, 32767)
    tl.store(at + i, tl.where(v < 0, -u, u).to(tl.int32), mask=live)


@triton.jit
def _saturated(x):
    """Limited to what 16 bits hold."""
    return tl.minimum(tl.maximum(x, -32768), 32767)


@triton.jit
def klt_basis_kernel(
    groups,
    scratch,
    bases,  # i16, of each group [channels, channels]: row c is component c
    N: tl.constexpr,
    BN: tl.constexpr,
):
    """Makes BN columns of the basis of a group in each program. N is as above."""
    group = groups + tl.program_id(0).to(tl.int64) * 6
    n = number(group, 2)
    c = tl.arange(0, N)
    column = tl.program_id(1) * BN + tl.arange(0, BN)
    a = tl.where(c[:, None] == column[None, :], 16384, 0)
    at = scratch + tl.load(group + 4)
    for j in range(tl.where(tl.program_id(1) * BN < n, number(group, 3), 0)):
        u = tl.load(at + (c - j), mask=(c >= j) & (c < n), other=0)[:, None]
        w = _saturated((tl.sum(u * a, 0) + 8192) >> 14)[None, :]
        a = _saturated(a - ((((u * w) >> 14) + 1) >> 1))
        at += n - j
    live = (c < n)[:, None] & (column < n)[None, :]
    out = bases + tl.load(group + 5) + c[:, None] * n + column[None, :]
    tl.store(out, a.to(tl.int16), mask=live)


@triton.jit
def _low_byte(x):
    """The number from -128 to 127 that equals x modulo 256."""
    return ((x + 128) & 255) - 128


@triton.jit
def _multiply(levels, basis, channels, n, row, rows, column, steps, BK: tl.constexpr):
    """Exact sums i64 of levels i32 [rows, n] by a basis i16 [n, n], for tiles of both.

    Levels are within 2^21, and have three bytes; products of bytes keep to 32 bits. `basis` is 256
    high + low + 128, and high and low have 8 bits each.
    """
    parts = tl.zeros([row.shape[0], column.shape[0]], tl.int32)
    one, two, three = parts, parts, parts
    sums = tl.zeros([row.shape[0]], tl.int64)
    for first in range(0, steps, BK):
        k = first + tl.arange(0, BK)
        live = (row < rows)[:, None] & (k < n)[None, :]
        level = tl.load(levels + row[:, None] * channels + k[None, :], mask=live, other=0)
        live = (k < n)[:, None] & (column < n)[None, :]
        vector = tl.load(basis + k[:, None] * n + column[None, :], mask=live, other=0).to(tl.int32)
        low, high = ((vector & 255) - 128).to(tl.int8), (vector >> 8).to(tl.int8)
        sums += tl.sum(level, 1)
        byte = _low_byte(level)
        rest = (level - byte) >> 8
        parts = tl.dot(byte.to(tl.int8), low, parts, out_dtype=tl.int32)
        one = tl.dot(byte.to(tl.int8), high, one, out_dtype=tl.int32)
        # Few levels have more than a byte.
        if tl.max(tl.max(tl.abs(rest), 1), 0) != 0:
            byte = _low_byte(rest)
            one = tl.dot(byte.to(tl.int8), low, one, out_dtype=tl.int32)
            two = tl.dot(byte.to(tl.int8), high, two, out_dtype=tl.int32)
            byte = (rest - byte) >> 8
            two = tl.dot(byte.to(tl.int8), low, two, out_dtype=tl.int32)
            three = tl.dot(byte.to(tl.int8), high, three, out_dtype=tl.int32)
    whole = parts.to(tl.int64) + (one.to(tl.int64) << 8) + (two.to(tl.int64) << 16)
    return whole + (three.to(tl.int64) << 24) + (sums * 128)[:, None]


@triton.jit
def klt_product_kernel(
    blocks,
    tensors,
    groups,
    bases,
    scratch,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    """Multiplies BM tokens by BN columns of a basis in each program [group, tokens, columns].

    Writes elements before norms and rotation.
    """
    group = groups + tl.program_id(0).to(tl.int64) * 6
    block = blocks + tl.load(group) * 24
    tensor = tensors + tl.load(block + 16) * 12
    channels, rows, products, levels = _places(block, tensor)
    side = scratch + tl.load(block + 9) + number(group, 1)
    n = number(group, 2)
    row = tl.program_id(1) * BM + tl.arange(0, BM)
    column = tl.program_id(2) * BN + tl.arange(0, BN)
    inside = (tl.program_id(1) * BM < rows) & (tl.program_id(2) * BN < n)
    steps = tl.where(inside, n, 0)
    basis = bases + tl.load(group + 5)
    sums = _multiply(side + levels, basis, channels, n, row, rows, column, steps, BK)
    offsets = scratch + tl.load(block + 9) + levels + rows * channels + number(block, 7)
    offset = tl.load(offsets + row, mask=row < rows, other=0)
    quarter = offset & 3
    factor = tl.where(quarter == 0, 0x3F800000, tl.where(quarter == 1, 0x3F5744FD, 0x3F3504F3))
    factor = tl.where(quarter == 3, 0x3F1837F0, factor) - ((offset >> 2) << 23)
    step = tl.load(tensor + 5).to(tl.int32).to(tl.float32, bitcast=True)
    unit = step * factor.to(tl.float32, bitcast=True)
    # 2^-15 with a trellis, else 2^-14.
    unit *= tl.where((number(tensor, 0) & 8) != 0, 3.0517578125e-05, 6.103515625e-05)
    mean = tl.load(side + channels + column, mask=column < n, other=0).to(tl.float32)
    value = sums.to(tl.float32) * unit[:, None] + (mean * (step * 0.125))[None, :]
    live = (row < rows)[:, None] & (column < n)[None, :]
    out = side + products + row[:, None] * channels + column[None, :]
    tl.store(out, value.to(tl.int32, bitcast=True), mask=live)
