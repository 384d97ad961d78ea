# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Triton kernel of the entropy decoder of `klt-profile`, section 5 of FORMAT.md.

The same source runs on GPUs and, with TRITON_INTERPRET=1, on the CPU. 32 lanes decode a block; a
*row* is a coded token, and rows of a launch follow one another.
"""

# Constants of a launch are in capitals, and Triton gives types to what it compiles.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
# ruff: noqa: ANN001, ANN202, N803

import triton  # type: ignore[import-not-found,unused-ignore]
import triton.language as tl  # type: ignore[import-not-found,unused-ignore]

from kvcompress.gpu._rans import advance, append_low, bits_left, half, has_wide, resolve


@triton.jit
def _parts(data, block):
    """Where words, escapes and low bits of a block begin, and their bytes."""
    word_bytes = 2 * tl.load(block + 1).to(tl.int32)
    escape_bytes = tl.load(block + 2).to(tl.int32)
    words = data + tl.load(block) + 128
    escapes = words + word_bytes
    low_bits = escapes + escape_bytes
    return words, escapes, low_bits, word_bytes, escape_bytes, tl.load(block + 3).to(tl.int32)


@triton.jit
def split(own_class, offset, state, TRELLIS: tl.constexpr):
    """The table of each lane, below 56, and its low bits, at most 11."""
    e = tl.minimum(tl.maximum(own_class + offset, 0), 71)
    low = tl.where(e < 28, 0, (e - 24) >> 2)
    table = e - 4 * low
    if TRELLIS:
        table += tl.where((low == 0) & ((state & 1) != 0), 28, 0)
    return table, low


@triton.jit
def level_of(quantum, state, live, TRELLIS: tl.constexpr):
    """Levels of quanta, 0 in other lanes, and the states of the trellis after them."""
    level = quantum
    if TRELLIS:
        odd = state & 1
        sign = tl.where(quantum > 0, 1, tl.where(quantum < 0, -1, 0))
        level = 2 * quantum - odd * sign
        parity = quantum & 1
        state = (odd ^ ((state >> 1) & 1)) | ((parity ^ (state >> 2)) << 1) | (odd << 2)
    return tl.where(live, level, 0), state


@triton.jit
def _store_planes(level, low_at, high_at, has_high):
    """Stores levels to planes of 8 bits, 256 high + low; returns those that do not fit, as i32."""
    high = tl.zeros_like(level)
    fits = (level >= -128) & (level <= 127)
    if has_high:
        fits = (level >= -32640) & (level <= 32639)
        high = tl.where(fits, (level + 128) >> 8, 0)
        tl.store(high_at, high.to(tl.int8))
    tl.store(low_at, tl.where(fits, level - high * 256, 0).to(tl.int8))
    return (fits == 0).to(tl.int32)


@triton.jit(do_not_specialize=["components"])
def entropy_kernel(
    data,  # u8, the payload
    blocks,  # i64 [., 8], as `_descriptors` makes them; all within the payload
    classes,  # i32 [components], with the shift
    offsets,  # i8 [tokens]
    low_runs,  # i32 [runs], whether a run has low bits
    slots,  # i32 [56, 2048], symbol << 24 | f << 12 | slot - first
    low_plane,  # i8 [rows, low_width], zeros before
    high_plane,  # i8 [rows, high_width], of the runs before high_width
    levels,  # i32 [rows, low_width], with WHOLE in place of the planes
    found,  # i32 [blocks, 2], what is set for a block that is broken, or beyond the planes
    components,
    low_width,
    high_width,
    TRELLIS: tl.constexpr,
    WHOLE: tl.constexpr,
    PTX: tl.constexpr,
):
    """Decodes one block in each program; reads nothing outside of it, whatever it says."""
    block = blocks + tl.program_id(0).to(tl.int64) * 8
    words, escapes, low_bits, word_bytes, escape_bytes, low_bytes = _parts(data, block)
    offsets += tl.load(block + 7)
    first_row = tl.load(block + 5)
    tokens = tl.load(block + 6).to(tl.int32)
    wide_escapes = has_wide(escapes, escape_bytes)
    lane = tl.arange(0, 32)
    x = half(words - 128, 4 * lane, 128, lane < 32)
    x |= half(words - 128, 4 * lane + 2, 128, lane < 32) << 16
    zeros = tl.zeros_like(lane)
    word_at, escape_at, bit_at, wrong, lost = zeros, zeros, zeros, zeros, zeros
    for run in range(tl.load(block + 4).to(tl.int32)):
        component = 32 * run + lane
        live = component < components
        own_class = tl.load(classes + component, mask=live, other=0)
        has_low = tl.load(low_runs + run)
        state = tl.zeros_like(lane)
        for t in range(tokens):
            table, low = split(own_class, tl.load(offsets + t).to(tl.int32), state, TRELLIS)
            slot = tl.load(slots + table * 2048 + (x & 2047), mask=live, other=0)
            x, word_at = advance(x, slot, live, words, word_at, word_bytes, PTX)
            symbol, escape_at, bad = resolve(
                slot >> 24, live, escapes, escape_at, escape_bytes, wide_escapes, PTX
            )
            wrong |= bad
            if has_low != 0:
                symbol, bit_at, bad = append_low(symbol, low, live, low_bits, bit_at, low_bytes)
                wrong |= bad
            level, state = level_of(symbol, state, live, TRELLIS)
            low_at = (first_row + t) * low_width + component
            high_at = (first_row + t) * high_width + component
            if WHOLE:
                tl.store(levels + low_at, level)
            else:
                has_high = 32 * run < high_width
                lost |= _store_planes(level, low_plane + low_at, high_plane + high_at, has_high)
    wrong |= ((x != 32768) | (2 * word_at != word_bytes)).to(tl.int32)
    wrong |= (escape_at != escape_bytes).to(tl.int32) | bits_left(low_bits, bit_at, low_bytes)
    tl.store(found + 2 * tl.program_id(0), tl.max((wrong != 0).to(tl.int32), 0))
    tl.store(found + 2 * tl.program_id(0) + 1, tl.max(lost, 0))
