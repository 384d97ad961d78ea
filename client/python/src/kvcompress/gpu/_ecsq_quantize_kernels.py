# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Triton kernels from elements to the integers of `ecsq`, section 5 of FORMAT.md.

Blocks are rows i64 [24] and tensors rows i64 [12], as decoders have them (`_ecsq`), with these
changes: of a block, byte 0 is that of its sinks, less what its states would take, and columns 20
and 21 have its first channel among those of all blocks and its first token among those of all
tensors with norms. Of a tensor, flag 32 says that outliers are taken for zeros. Values are
elements without rotation and outliers, divided by norms. Sums in binary64 are in the order of the
service's, so that both choose alike.
"""

# Constants of a launch are in capitals, and Triton gives types to what it compiles.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
# ruff: noqa: ANN001, ANN202, N803, N806

import triton  # type: ignore[import-not-found,unused-ignore]
import triton.language as tl  # type: ignore[import-not-found,unused-ignore]

from kvcompress.gpu._ecsq_kernels import number, pair_of, power, shift_of
from kvcompress.gpu._elements import float_of, output


@triton.jit
def _element(place, head, token, channel, live, hides, DTYPE: tl.constexpr):
    """Elements as f32, 0 where they are not live, and for outliers if those are to be hidden."""
    SIZE: tl.constexpr = 4 if DTYPE == "F32" else 2
    each = tl.load(place + 1)
    at = head // each * tl.load(place + 4) + head % each * tl.load(place + 6)
    at += token.to(tl.int64) * tl.load(place + 9) + channel.to(tl.int64) * tl.load(place + 11)
    x = float_of(tl.load(output(place, SIZE) + at, mask=live, other=0), DTYPE)
    return tl.where((hides != 0) & (tl.abs(x) > 1024.0), 0.0, x)


@triton.jit
def _value(
    tensor,
    place,
    rotations,
    scales,
    head,
    token,
    channel,
    row,
    live,
    DTYPE: tl.constexpr,
):
    """Values. scales: pointer to f32 [., rows], how many there are, and how far apart."""
    flags = number(tensor, 0)
    x = _element(place, head, token, channel, live, flags & 32, DTYPE)
    if (flags & 2) != 0:
        paired, second, pair, other = pair_of(tensor, channel)
        turned = live & paired
        finer = power(-number(tensor, 10))
        y = _element(place, head, token, other, turned, flags & 32, DTYPE) * finer
        own = x * finer
        row_at = tl.load(tensor + 11) + token.to(tl.int64) * number(tensor, 9)
        at = rotations + 2 * (row_at + pair)
        cosine = tl.load(at, mask=turned, other=1.0)
        sine = tl.load(at + 1, mask=turned, other=0.0)
        both = tl.where(second, own * cosine - y * sine, own * cosine + y * sine)
        x = tl.where(turned, both, x)
    if (flags & 1) != 0:
        for k in range(scales[1]):
            x = x * tl.load(scales[0] + k * scales[2] + row, mask=live, other=0.0)
    return x


@triton.jit
def squares_kernel(
    tiles,  # i64 [., 4]: tensor, its first token of a head among those of all, first of the tile,
    #         and how many the tensor has
    tensors,
    places,  # i64 [tensors, 14]
    squares,  # f64, of each token of a head
    BM: tl.constexpr,
    DTYPE: tl.constexpr,
):
    """Sums the squares of tokens, BM of a tensor in each program: channel c in lane c mod 8."""
    tile = tiles + 4 * tl.program_id(0).to(tl.int64)
    tensor, place = tensors + 12 * tl.load(tile), places + 14 * tl.load(tile)
    tokens, width = tl.load(tensor + 7), number(tensor, 6)
    i = tl.load(tile + 2) + tl.arange(0, BM)
    live = i < tl.load(tile + 3)
    lane = tl.arange(0, 8)[None, :]
    head, token = (i // tokens)[:, None], (i % tokens)[:, None]
    lanes = tl.zeros([BM, 8], tl.float64)
    for first in range(0, width, 8):
        channel = first + lane
        inside = live[:, None] & (channel < width)
        x = _element(place, head, token, channel, inside, number(tensor, 0) & 32, DTYPE)
        x = x.to(tl.float64)
        lanes += x * x
    total = tl.zeros([BM], tl.float64)
    for k in tl.static_range(8):
        total += tl.sum(tl.where(lane == k, lanes, 0.0), 1)
    tl.store(squares + tl.load(tile + 1) + i, total, mask=live)


@triton.jit
def measure_kernel(
    blocks,
    tensors,
    places,
    rotations,  # f32, of rotation_kernel, tensor by tensor
    scales,  # f32 [count, rows], which values are multiplied with one after the other
    sums,  # f64 [2, channels of all blocks], of values and of their squares
    largest,  # i32 [tensors], zeros before: bits of the largest magnitude
    count,
    rows,
    channels,
    DTYPE: tl.constexpr,
    BC: tl.constexpr,
):
    """Sums the values of BC channels of a block over its tokens, but for sinks."""
    block = blocks + tl.program_id(0).to(tl.int64) * 24
    tensor, place = tensors + 12 * tl.load(block + 16), places + 14 * tl.load(block + 16)
    tokens, width, first = number(block, 6), number(tensor, 6), number(block, 8)
    column = tl.program_id(1) * BC + tl.arange(0, BC)
    live = column < number(block, 5) * width
    head, channel = column // width, column % width
    sinks = tl.minimum(tl.maximum(number(tensor, 1) - first, 0), tokens)
    x1, x2 = tl.zeros([BC], tl.float64), tl.zeros([BC], tl.float64)
    most = tl.zeros([BC], tl.float32)
    for t in range(sinks, tokens):
        row = tl.load(block + 21) + head * tokens + t
        x = _value(
            tensor, place, rotations, (scales, count, rows), tl.load(block + 17) + head,
            first + t + tl.zeros_like(channel), channel, row, live, DTYPE,
        )  # fmt: skip
        most = tl.maximum(most, tl.abs(x))
        x = x.to(tl.float64)
        x1 += x
        x2 += x * x
    at = sums + tl.load(block + 20) + column
    tl.store(at, x1, mask=live)
    tl.store(at + channels, x2, mask=live)
    bits = tl.max(most, 0).to(tl.int32, bitcast=True)
    tl.atomic_max(largest + tl.load(block + 16), bits)


@triton.jit
def quantize_block_kernel(
    blocks,
    tensors,
    places,
    rotations,
    scales,  # f32 [count, rows], as measure_kernel takes them
    classes,  # i32 [channels of all blocks]
    means,  # i32, in eighths of a step
    norms,  # i32 [rows], codes
    thresholds,  # f32 [29, 64], below which the lesser of two quanta is taken
    scratch,  # i32: of each block its classes, means, norms, and quanta
    count,
    rows,
    DTYPE: tl.constexpr,
    RATE: tl.constexpr,  # whether thresholds count
    BLOCK: tl.constexpr,
):
    """Makes some of the integers of a block in each program."""
    block = blocks + tl.program_id(0).to(tl.int64) * 24
    tensor, place = tensors + 12 * tl.load(block + 16), places + 14 * tl.load(block + 16)
    tokens, sinks = number(block, 6), number(block, 7)
    width, first = number(tensor, 6), number(block, 8)
    channels = number(block, 5) * width
    own = number(block, 5) * tokens * (number(tensor, 0) & 1)
    side = tl.load(block + 20)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    q = i - 2 * channels - own
    live = (q >= 0) & (q < (tokens - sinks) * channels)
    column, t = tl.maximum(q, 0) % channels, sinks + tl.maximum(q, 0) // channels
    head = column // width
    row = tl.load(block + 21) + head * tokens + t
    x = _value(
        tensor, place, rotations, (scales, count, rows), tl.load(block + 17) + head,
        first + t, column % width, row, live, DTYPE,
    )  # fmt: skip
    step = tl.load(tensor + 5).to(tl.int32).to(tl.float32, bitcast=True)
    shift = shift_of(tensor, first + t)
    mean = tl.load(means + side + column, mask=live, other=0).to(tl.float32) * (step * 0.125)
    finer = (1 << shift).to(tl.float32)
    size = (x - mean) * tl.div_rn(finer, tl.zeros_like(finer) + step)
    negative = size < 0
    size = tl.minimum(tl.abs(size), 1048576.0)
    quantum = (size + 0.5).to(tl.int32)
    if RATE:
        own_class = tl.minimum(tl.load(classes + side + column, mask=live, other=0), 28)
        least = tl.load(thresholds + own_class * 64 + tl.minimum(quantum, 63))
        quantum -= ((size < least) & (shift == 0)).to(tl.int32)
    found = tl.where(live, tl.where(negative, -quantum, quantum), 0)
    found += tl.load(classes + side + i, mask=i < channels, other=0)
    is_mean = (i >= channels) & (i < 2 * channels)
    found += tl.load(means + side + i - channels, mask=is_mean, other=0)
    is_norm = (i >= 2 * channels) & (q < 0)
    found += tl.load(norms + tl.load(block + 21) + i - 2 * channels, mask=is_norm, other=0)
    inside = live | (q < 0)
    tl.store(scratch + tl.load(block + 9) + i, found, mask=inside)


@triton.jit
def sinks_kernel(
    heads,  # i64 [., 3]: number of the block, the head within it, where its sinks begin
    blocks,
    tensors,
    places,
    out,  # u8, of each block the scales of all its heads, then their codes
    DTYPE: tl.constexpr,
    BD: tl.constexpr,
):
    """Encodes token 0 of a head as integers in each program."""
    row = heads + 3 * tl.program_id(0).to(tl.int64)
    block, head = blocks + 24 * tl.load(row), tl.load(row + 1)
    tensor, place = tensors + 12 * tl.load(block + 16), places + 14 * tl.load(block + 16)
    width = number(tensor, 6)
    channel = tl.arange(0, BD)
    live = channel < width
    whole = tl.load(block + 17) + head
    x = _element(place, whole, tl.zeros_like(channel), channel, live, 0, DTYPE)
    largest = tl.max(tl.abs(x), 0) + tl.zeros_like(x)
    bits = tl.div_rn(largest, tl.full([BD], 127.0, tl.float32)).to(tl.int32, bitcast=True)
    bits = (bits + 0xFFFF) >> 16
    scale = (bits << 16).to(tl.float32, bitcast=True)
    ratio = tl.abs(tl.div_rn(x, tl.where(bits == 0, 1.0, scale)))
    ratio = tl.minimum(ratio, 128.0)
    # A half added to the ratio itself could round up one that is just below it.
    code = ratio.to(tl.int32)
    code += (ratio - code.to(tl.float32) >= 0.5).to(tl.int32)
    code = tl.where(bits == 0, 0, tl.minimum(code, 127))
    code = tl.where(x < 0, -code, code)
    out += tl.load(row + 2)
    two = (bits >> (8 * (channel & 1))) & 255
    tl.store(out + 2 * head + channel, two.to(tl.uint8), mask=channel < 2)
    codes = out + 2 * number(block, 5) + head * width
    tl.store(codes + channel, code.to(tl.int8).to(tl.uint8, bitcast=True), mask=live)


@triton.jit
def turn_back_kernel(
    trials,  # i64 [., 7]: tensor, head, tokens, pairs, first channel, whether pairs are
    #         interleaved, where its turns and sums begin
    tensors,
    places,
    turns,  # f32: of each trial the cosines, then the sines of its pairs
    sums,  # f32, likewise the sums of first, then of second channels
    energies,  # f64, of each trial the sum of the squares of its channels
    DTYPE: tl.constexpr,
    BP: tl.constexpr,
):
    """Rotates tokens from 1 on of a head inversely by a trial's rotation, and adds them up."""
    trial = trials + 7 * tl.program_id(0).to(tl.int64)
    tensor, place = tensors + 12 * tl.load(trial), places + 14 * tl.load(trial)
    head, pairs, first = tl.load(trial + 1), number(trial, 3), number(trial, 4)
    hides = number(tensor, 0) & 32
    pair = tl.arange(0, BP)
    live = pair < pairs
    interleaved = number(trial, 5) != 0
    one = first + tl.where(interleaved, 2 * pair, pair)
    other = one + tl.where(interleaved, 1, pairs)
    at = tl.load(trial + 6) + pair
    turn_cosine = tl.load(turns + at, mask=live, other=1.0)
    turn_sine = tl.load(turns + at + pairs, mask=live, other=0.0)
    zeros = tl.zeros([BP], tl.float32)
    cosine, sine, sum_x, sum_y = zeros + 1.0, zeros, zeros, zeros
    energy = tl.zeros([BP], tl.float64)
    for t in range(number(trial, 2)):
        token = tl.zeros_like(pair) + t + 1
        x = _element(place, head, token, one, live, hides, DTYPE)
        y = _element(place, head, token, other, live, hides, DTYPE)
        sum_x += x * cosine + y * sine
        sum_y += y * cosine - x * sine
        after = cosine * turn_cosine - sine * turn_sine
        sine = sine * turn_cosine + cosine * turn_sine
        cosine = after
        x, y = x.to(tl.float64), y.to(tl.float64)
        energy += x * x + y * y
    tl.store(sums + at, sum_x, mask=live)
    tl.store(sums + at + pairs, sum_y, mask=live)
    tl.store(energies + tl.program_id(0), tl.sum(energy, 0))
