# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Triton kernels that compare what was encoded with what it restores to, in binary64.

A *tile* is some tokens of a head. Sums are of tiles first and then of these, always in one order,
so that two runs give the same numbers.
"""

# Constants of a launch are in capitals, and Triton gives types to what it compiles.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
# ruff: noqa: ANN001, ANN202, N803

import triton  # type: ignore[import-not-found,unused-ignore]
import triton.language as tl  # type: ignore[import-not-found,unused-ignore]

from kvcompress.gpu._elements import float_of


@triton.jit
def _base(tensor, strides, batch, head, DTYPE: tl.constexpr, ALIGNED: tl.constexpr):
    """Where a head of a tensor begins."""
    if DTYPE == "F32":
        data = tl.load(tensor).to(tl.pointer_type(tl.int32))
    else:
        data = tl.load(tensor).to(tl.pointer_type(tl.int16))
    data += batch * tl.load(strides) + head * tl.load(strides + 1)
    if ALIGNED:
        data = tl.multiple_of(data, 16)
    return data


@triton.jit
def _read(data, strides, token, channel, live, DTYPE: tl.constexpr, ALIGNED: tl.constexpr):
    """Elements [tokens, channels] as f64, 0 where they are not live."""
    row = token * tl.load(strides + 2)
    if ALIGNED:
        at = row[:, None] + channel[None, :]
        at = tl.max_contiguous(tl.multiple_of(at, [1, 8]), [1, 8])
    else:
        at = row[:, None] + (channel.to(tl.int64) * tl.load(strides + 3))[None, :]
    return float_of(tl.load(data + at, mask=live, other=0), DTYPE).to(tl.float64)


@triton.jit
def _store_ratios(out, signal, noise, live):
    """Stores the ratio of signal and noise of tokens, infinity where there is no noise."""
    ratio = tl.where(noise == 0, float("inf"), signal / tl.where(noise == 0, 1.0, noise))
    tl.store(out, ratio, mask=live)


@triton.jit
def _store_four(out, a, b, c, d):
    """Stores four numbers, one behind the other."""
    tl.store(out, a)
    tl.store(out + 1, b)
    tl.store(out + 2, c)
    tl.store(out + 3, d)


@triton.jit
def compare_kernel(
    tensors,  # i64 [., 13]: addresses of both; heads, tokens and channels; strides of both
    tiles,  # i64 [., 5]: tensor; head, with those of batches before; first token; where the ratio
    #         of the first token and the sum of the first channel go, -1 for nowhere
    sums,  # f64 [tiles, 8]: squares of one and of the other, products, squares and magnitudes of
    #        errors, squares of errors of token 0; the largest error and element
    ratios,  # f64, of signal and noise of each token
    columns,  # f64, of each tile and channel
    BT: tl.constexpr,
    BD: tl.constexpr,
    STEPS: tl.constexpr,  # BT tokens of a tile each; 1 for tensors of more than BD channels
    DTYPE: tl.constexpr,
    ALIGNED: tl.constexpr,  # channels are whole BD that follow one another, and rows are aligned
):
    """Compares a tile in each program."""
    tile = tiles + tl.program_id(0).to(tl.int64) * 5
    tensor = tensors + tl.load(tile) * 13
    heads, tokens, channels = tl.load(tensor + 2), tl.load(tensor + 3), tl.load(tensor + 4)
    channels = channels.to(tl.int32)
    batch, head = tl.load(tile + 1) // heads, tl.load(tile + 1) % heads
    source = _base(tensor, tensor + 5, batch, head, DTYPE, ALIGNED)
    restored = _base(tensor + 1, tensor + 9, batch, head, DTYPE, ALIGNED)
    at, column = tl.load(tile + 3), tl.load(tile + 4)
    zero = tl.sum(tl.zeros([BT], tl.float64), 0)
    squares, other, product, errors, size, early = zero, zero, zero, zero, zero, zero
    largest, most = zero, zero
    total = tl.zeros([BD], tl.float64)
    for step in range(STEPS):
        i = step * BT + tl.arange(0, BT)
        token = tl.load(tile + 2) + i
        signal, noise = tl.zeros([BT], tl.float64), tl.zeros([BT], tl.float64)
        for first in range(0, channels, BD):
            channel = first + tl.arange(0, BD)
            live = (token < tokens)[:, None]
            if not ALIGNED:
                live = live & (channel < channels)[None, :]
            x = _read(source, tensor + 5, token, channel, live, DTYPE, ALIGNED)
            y = _read(restored, tensor + 9, token, channel, live, DTYPE, ALIGNED)
            error = y - x
            signal, noise = signal + tl.sum(x * x, 1), noise + tl.sum(error * error, 1)
            other, product = other + tl.sum(y * y), product + tl.sum(x * y)
            size += tl.sum(tl.abs(error))
            largest = tl.maximum(largest, tl.max(tl.abs(error)))
            most = tl.maximum(most, tl.max(tl.abs(x)))
            if column >= 0:
                total += tl.sum(x, 0)
                if STEPS == 1:
                    tl.store(columns + column + channel, total, mask=channel < channels)
                    total = tl.zeros([BD], tl.float64)
        if at >= 0:
            _store_ratios(ratios + at + i, signal, noise, token < tokens)
            early += tl.sum(tl.where(token == 0, noise, 0.0), 0)
        squares, errors = squares + tl.sum(signal, 0), errors + tl.sum(noise, 0)
    if STEPS > 1:  # noqa: SIM102 - what Triton compiles has no `and` of a constant and a number
        if column >= 0:
            tl.store(columns + column + tl.arange(0, BD), total, mask=tl.arange(0, BD) < channels)
    sums += tl.program_id(0).to(tl.int64) * 8
    _store_four(sums, squares, other, product, errors)
    _store_four(sums + 4, size, early, largest, most)


@triton.jit
def total_kernel(sums, ends, totals, BLOCK: tl.constexpr):
    """Sums of the tiles of a tensor, the last two the largest, in each program.

    ends: i64 [tensors, 2], its first tile and the one behind its last. totals: f64 [tensors, 8].
    """
    first, end = tl.load(ends + 2 * tl.program_id(0)), tl.load(ends + 2 * tl.program_id(0) + 1)
    k = tl.arange(0, 8)
    total = tl.zeros([8], tl.float64)
    for at in range(first, end, BLOCK):
        i = at + tl.arange(0, BLOCK)
        part = tl.load(sums + i[:, None] * 8 + k[None, :], mask=(i < end)[:, None], other=0)
        total = tl.where(k < 6, total + tl.sum(part, 0), tl.maximum(total, tl.max(part, 0)))
    tl.store(totals + 8 * tl.program_id(0) + k, total)


@triton.jit
def means_kernel(columns, heads, means, BLOCK: tl.constexpr, BD: tl.constexpr):
    """What the means of the channels of a head have of its squares, in each program.

    heads: i64 [., 4], where the sums of its tiles begin, its tiles, channels and tokens.
    """
    head = heads + 4 * tl.program_id(0).to(tl.int64)
    tiles, channels = tl.load(head + 1).to(tl.int32), tl.load(head + 2).to(tl.int32)
    columns += tl.load(head)
    squares = tl.zeros([BD], tl.float64)
    for first in range(0, channels, BD):
        channel = first + tl.arange(0, BD)
        total = tl.zeros([BD], tl.float64)
        for at in range(0, tiles, BLOCK):
            i = at + tl.arange(0, BLOCK)
            live = (i < tiles)[:, None] & (channel < channels)[None, :]
            place = i.to(tl.int64)[:, None] * channels + channel[None, :]
            total += tl.sum(tl.load(columns + place, mask=live, other=0), 0)
        squares += total * total
    tl.store(means + tl.program_id(0), tl.sum(squares, 0) / tl.load(head + 3).to(tl.float64))
