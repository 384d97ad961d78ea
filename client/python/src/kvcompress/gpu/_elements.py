# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What kernels share: elements, rounded to a type and back, where one lies, and tiles.

A *place* says where the elements of a payload go, i64 [14]: the address; heads of a batch, tokens
and channels of the payload; strides, in elements, of batches, outer heads and inner heads, and how
many inner heads an outer one has; the same of pages and the tokens of a page; the stride of
channels; the first token of the range, and the one behind its last. Heads and tokens have two
strides each since layouts may cut them in two axes.
"""

# Constants of a launch are in capitals, and Triton gives types to what it compiles.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
# ruff: noqa: ANN001, ANN202, N803, N806

import triton  # type: ignore[import-not-found,unused-ignore]
import triton.language as tl  # type: ignore[import-not-found,unused-ignore]


@triton.jit
def _small_bits(z, MANTISSA: tl.constexpr, BIAS: tl.constexpr, LARGEST: tl.constexpr):
    """Rounds f32 to a type of 8 bits with codes up to LARGEST."""
    b = z.to(tl.int32, bitcast=True)
    m = b & 0x7FFFFFFF
    SHIFT: tl.constexpr = 23 - MANTISSA
    normal = (m + ((1 << (SHIFT - 1)) - 1) + ((m >> SHIFT) & 1)) >> SHIFT
    normal -= (127 - BIAS) << MANTISSA
    # Sums with 2^23 round to integers, ties to even; the least normal value is 2^(1 - BIAS).
    least = m < ((128 - BIAS) << 23)
    units = tl.where(least, m, 0).to(tl.float32, bitcast=True) * (1 << (BIAS - 1 + MANTISSA))
    tiny = ((units + 8388608.0) - 8388608.0).to(tl.int32)
    code = tl.minimum(tl.where(least, tiny, normal), LARGEST)
    return (code | ((b >> 24) & 0x80)).to(tl.int8)


@triton.jit
def element_bits(z, DTYPE: tl.constexpr):
    """Rounds f32 to the bits of a type, to nearest even and to its finite values; z is no NaN."""
    b = z.to(tl.int32, bitcast=True)
    b -= tl.maximum((b & 0x7FFFFFFF) - 0x7F7FFFFF, 0)
    if DTYPE == "F32":
        bits = b
    elif DTYPE == "F64":
        bits = b.to(tl.float32, bitcast=True).to(tl.float64).to(tl.int64, bitcast=True)
    elif DTYPE == "F16":
        z = tl.where(z > 65504.0, 65504.0, tl.where(z < -65504.0, -65504.0, z))
        bits = z.to(tl.float16).to(tl.int16, bitcast=True)
    elif DTYPE == "BF16":
        b = (b + 0x7FFF + ((b >> 16) & 1)) >> 16
        bits = (tl.minimum(b & 0x7FFF, 0x7F7F) | (b & 0x8000)).to(tl.int16)
    elif DTYPE == "F8_E4M3":
        bits = _small_bits(z, 3, 7, 0x7E)
    else:
        bits = _small_bits(z, 2, 15, 0x7B)
    return bits


@triton.jit
def float_of(bits, DTYPE: tl.constexpr):
    """Elements of F32, F16 or BF16 as f32, from their bits."""
    if DTYPE == "F32":
        x = bits.to(tl.float32, bitcast=True)
    elif DTYPE == "F16":
        x = bits.to(tl.float16, bitcast=True).to(tl.float32)
    else:
        x = (bits.to(tl.int32) << 16).to(tl.float32, bitcast=True)
    return x


@triton.jit
def output(place, SIZE: tl.constexpr):
    """The tensor of a place, as integers of so many bytes."""
    address = tl.load(place)
    if SIZE == 1:
        out = address.to(tl.pointer_type(tl.int8))
    elif SIZE == 2:
        out = address.to(tl.pointer_type(tl.int16))
    elif SIZE == 4:
        out = address.to(tl.pointer_type(tl.int32))
    else:
        out = address.to(tl.pointer_type(tl.int64))
    return out


@triton.jit
def offset_of(place, token_slots, batch, head, token, channel, live, SPLIT: tl.constexpr):
    """Where elements lie in the tensor of a place, and which of them are in the range.

    token_slots: i64 [tokens of the range], where each goes, -1 for nowhere. Without SPLIT no place
    of the launch has several inner heads or tokens of a page.
    """
    first = tl.load(place + 12)
    live = live & (token >= first) & (token < tl.load(place + 13))
    slot = tl.load(token_slots + (token - first), mask=live, other=-1)
    live = live & (slot >= 0)
    at = batch * tl.load(place + 4) + channel.to(tl.int64) * tl.load(place + 11)
    if SPLIT:
        inner = tl.load(place + 7).to(tl.int32)
        at += (head // inner).to(tl.int64) * tl.load(place + 5)
        at += (head % inner).to(tl.int64) * tl.load(place + 6)
        page = tl.load(place + 10)
        at += (slot // page) * tl.load(place + 8) + (slot % page) * tl.load(place + 9)
    else:
        at += head.to(tl.int64) * tl.load(place + 6) + slot * tl.load(place + 9)
    return at, live


@triton.jit
def locate(place, token_slots, first, i, live, SPLIT: tl.constexpr):
    """Where the elements first + i of the flattened payload lie, and which are in the range.

    i is i32 below 2^16; channels, tokens and heads are below 2^30, so that 32 bits hold all sums.
    """
    heads = tl.load(place + 1)
    tokens = tl.load(place + 2)
    channels = tl.load(place + 3)
    row = first // channels
    x = (first % channels).to(tl.int32) + i
    width = channels.to(tl.int32)
    channel = x % width
    x = (row % tokens).to(tl.int32) + x // width
    token = x % tokens.to(tl.int32)
    row = row // tokens
    x = (row % heads).to(tl.int32) + x // tokens.to(tl.int32)
    head = x % heads.to(tl.int32)
    batch = row // heads + (x // heads.to(tl.int32)).to(tl.int64)
    return offset_of(place, token_slots, batch, head, token, channel, live, SPLIT)


@triton.jit
def tile_of(columns):
    """The tile of rows and the one of columns of a program: eight of rows share a cache for all."""
    program = tl.program_id(0)
    row_tiles = tl.num_programs(0) // columns
    first = program // (8 * columns) * 8
    size = tl.minimum(row_tiles - first, 8)
    within = program % (8 * columns)
    return (first + within % size).to(tl.int64), (within // size).to(tl.int64)


@triton.jit
def _rows_before(place, row):
    """How many rows of the range are before a row."""
    tokens, first, end = tl.load(place + 2), tl.load(place + 12), tl.load(place + 13)
    within = tl.minimum(tl.maximum(row % tokens - first, 0), end - first)
    return row // tokens * (end - first) + within


@triton.jit
def touches(place, first, count):
    """Whether some elements from one on have one in the range of tokens."""
    channels = tl.load(place + 3)
    behind = (first + count - 1) // channels + 1
    return _rows_before(place, behind) > _rows_before(place, first // channels)
