# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Triton kernel that encodes `int4` and `int8`, section 5 of FORMAT.md."""

# Constants of a launch are in capitals, and Triton gives types to what it compiles.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
# ruff: noqa: ANN001, ANN202, N803, N806

import triton  # type: ignore[import-not-found,unused-ignore]
import triton.language as tl  # type: ignore[import-not-found,unused-ignore]

from kvcompress.gpu._elements import float_of, locate, output


@triton.jit
def _read(place, token_slots, first, i, live, DTYPE: tl.constexpr, SPLIT: tl.constexpr):
    """The elements first + i of the payload as f32, 0 where they are not live."""
    SIZE: tl.constexpr = 4 if DTYPE == "F32" else 2
    at, live = locate(place, token_slots, first, i, live, SPLIT)
    return float_of(tl.load(output(place, SIZE) + at, mask=live, other=0), DTYPE)


@triton.jit
def _magnitude(x):
    """Bits of the magnitude, which are in the order of magnitudes; NaN is above infinity."""
    return x.to(tl.int32, bitcast=True) & 0x7FFFFFFF


@triton.jit
def _scale(largest, MOST: tl.constexpr):
    """The scales of groups as f16, and which are not finite."""
    scale = tl.div_rn(largest.to(tl.float32, bitcast=True), tl.full([], MOST, tl.float32))
    bits = scale.to(tl.float16).to(tl.int16, bitcast=True)
    return bits, (largest >= 0x7F800000) | ((bits & 0x7C00) == 0x7C00)


@triton.jit
def _code(x, scale, MOST: tl.constexpr):
    """Codes of elements, rounded half away; 0 where the scale is."""
    ratio = tl.abs(tl.div_rn(x, tl.where(scale == 0, 1.0, scale)))
    # A half added to the ratio itself could round up one that is just below it.
    whole = tl.minimum(ratio, MOST + 2.0).to(tl.int32)
    whole += (tl.minimum(ratio, MOST + 2.0) - whole.to(tl.float32) >= 0.5).to(tl.int32)
    code = tl.where(x < 0, tl.maximum(-whole, -MOST - 1), tl.minimum(whole, MOST))
    return tl.where(scale == 0, 0, code)


@triton.jit
def quantize_kernel(
    payloads,  # u8
    blocks,  # i64 [., 4]: place, byte of the block, its first element, how many
    places,  # i64 [., 14], of the tensors that are read
    token_slots,
    found,  # i32 [blocks], set where a scale is not finite
    GROUP: tl.constexpr,
    BITS: tl.constexpr,
    DTYPE: tl.constexpr,
    SPLIT: tl.constexpr,
    BLOCK: tl.constexpr,  # 4096, elements of a block at most
):
    """Encodes a block in each program."""
    block = blocks + tl.program_id(0).to(tl.int64) * 4
    place = places + tl.load(block) * 14
    payloads += tl.load(block + 1)
    first = tl.load(block + 2)
    count = tl.load(block + 3).to(tl.int32)
    WIDTH: tl.constexpr = GROUP * BITS // 8
    MOST: tl.constexpr = (1 << (BITS - 1)) - 1
    group = tl.arange(0, BLOCK // GROUP)
    within = tl.arange(0, WIDTH)[None, :]
    size = tl.minimum(count - group * GROUP, GROUP)[:, None]
    i = group[:, None] * GROUP + within
    used = group * GROUP < count
    codes = payloads + 2 * ((count + GROUP - 1) // GROUP) + group[:, None] * WIDTH + within
    if BITS == 8:
        live = within < size
        x = _read(place, token_slots, first, i, live, DTYPE, SPLIT)
        bits, wrong = _scale(tl.max(_magnitude(x), 1), MOST)
        scale = bits.to(tl.float16, bitcast=True).to(tl.float32)[:, None]
        tl.store(codes, _code(x, scale, MOST).to(tl.uint8), mask=live)
    else:
        half = (size + 1) // 2
        live = within < half
        upper = live & (within + half < size)
        x = _read(place, token_slots, first, i, live, DTYPE, SPLIT)
        y = _read(place, token_slots, first, i + half, upper, DTYPE, SPLIT)
        bits, wrong = _scale(tl.max(tl.maximum(_magnitude(x), _magnitude(y)), 1), MOST)
        scale = bits.to(tl.float16, bitcast=True).to(tl.float32)[:, None]
        low, high = _code(x, scale, MOST), _code(y, scale, MOST)
        tl.store(codes, ((low & 15) | ((high & 15) << 4)).to(tl.uint8), mask=live)
    bits = bits.to(tl.int32)
    tl.store(payloads + 2 * group, (bits & 255).to(tl.uint8), mask=used)
    tl.store(payloads + 2 * group + 1, ((bits >> 8) & 255).to(tl.uint8), mask=used)
    tl.store(found + tl.program_id(0), tl.max((used & wrong).to(tl.int32), 0))
