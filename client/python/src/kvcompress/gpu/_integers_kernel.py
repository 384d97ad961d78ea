# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Triton kernel that decodes `int4`, `int8` and the fallback of `ecsq`, section 5 of FORMAT.md."""

# Constants of a launch are in capitals, and Triton gives types to what it compiles.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
# ruff: noqa: ANN001, ANN202, N803, N806

import triton  # type: ignore[import-not-found,unused-ignore]
import triton.language as tl  # type: ignore[import-not-found,unused-ignore]

from kvcompress.gpu._elements import element_bits, locate, output, touches


@triton.jit
def _scales(scales, group, live, FALLBACK: tl.constexpr):
    """The scales of groups as f32; which of them are negative or not finite, as i32."""
    low = tl.load(scales, mask=live, other=0).to(tl.int32)
    bits = low | (tl.load(scales + 1, mask=live, other=0).to(tl.int32) << 8)
    if FALLBACK:
        wrong = bits >= 0x7F80
        scale = (bits << 16).to(tl.float32, bitcast=True)
    else:
        wrong = bits >= 0x7C00
        scale = bits.to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)
    return tl.where(wrong, 0.0, scale), (wrong & live).to(tl.int32)


@triton.jit
def _write(
    place,
    token_slots,
    first,
    i,
    live,
    z,
    DTYPE: tl.constexpr,
    SIZE: tl.constexpr,
    SPLIT: tl.constexpr,
):
    """Rounds elements first + i of the payload, and writes those of the range."""
    at, live = locate(place, token_slots, first, i, live, SPLIT)
    tl.store(output(place, SIZE) + at, element_bits(z, DTYPE), mask=live)


@triton.jit
def integers_kernel(
    data,  # u8, payloads
    outputs,  # i64 [., 16]: the first byte of a payload, its elements, and its place
    token_slots,
    found,  # u8 [outputs, blocks], zeros before, set for a block that is broken
    block_bytes,  # of a whole block
    GROUP: tl.constexpr,
    BITS: tl.constexpr,
    FALLBACK: tl.constexpr,  # each group with its scale, a bfloat16, before its codes
    DTYPE: tl.constexpr,
    SIZE: tl.constexpr,  # bytes of an element
    SPLIT: tl.constexpr,
    BLOCK: tl.constexpr,  # 4096, elements of a block at most
):
    """Decodes a block of an output in each program, if it has an element in the range."""
    output_of = outputs + tl.program_id(1).to(tl.int64) * 16
    place = output_of + 2
    number = tl.program_id(0).to(tl.int64)
    first = number * BLOCK
    # In 64 bits: an output may have far fewer elements than the largest one.
    count = tl.maximum(tl.minimum(tl.load(output_of + 1) - first, BLOCK), 0).to(tl.int32)
    if (count == 0) | (touches(place, first, count) == 0):
        return
    data += tl.load(output_of) + number * block_bytes
    # Bytes of codes of a group.
    WIDTH: tl.constexpr = GROUP * BITS // 8
    k = tl.arange(0, BLOCK * BITS // 8)
    group = k // WIDTH
    within = k % WIDTH
    size = tl.minimum(count - group * GROUP, GROUP)
    if FALLBACK:
        scales = data + group * (WIDTH + 2)
        codes = scales + 2 + within
    else:
        scales = data + 2 * group
        codes = data + 2 * ((count + GROUP - 1) // GROUP) + k
    if BITS == 8:
        live = within < size
        scale, wrong = _scales(scales, group, live, FALLBACK)
        code = tl.load(codes, mask=live, other=0).to(tl.int8, bitcast=True)
        if FALLBACK:
            wrong |= (code == -128).to(tl.int32)
        z = code.to(tl.float32) * scale
        _write(place, token_slots, first, k, live, z, DTYPE, SIZE, SPLIT)
    else:
        half = (size + 1) // 2
        live = within < half
        scale, wrong = _scales(scales, group, live, FALLBACK)
        code = tl.load(codes, mask=live, other=0).to(tl.int32)
        high = code >> 4
        upper = within + half < size
        wrong |= (live & (upper == 0) & (high != 0)).to(tl.int32)
        i = group * GROUP + within
        z = ((code << 28) >> 28).to(tl.float32) * scale
        _write(place, token_slots, first, i, live, z, DTYPE, SIZE, SPLIT)
        z = ((high << 28) >> 28).to(tl.float32) * scale
        _write(place, token_slots, first, i + half, live & upper, z, DTYPE, SIZE, SPLIT)
    if tl.max(wrong, 0) != 0:
        tl.store(found + tl.program_id(1).to(tl.int64) * tl.num_programs(0) + number, 1)
