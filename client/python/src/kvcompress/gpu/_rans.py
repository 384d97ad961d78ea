# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What entropy decoders of `ecsq` and `klt-profile` share: 32 lanes of rANS, escapes, low bits.

They read nothing outside of a block, whatever it says.
"""

# Constants of a launch are in capitals, and Triton gives types to what it compiles.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
# ruff: noqa: ANN001, ANN202, N803

import triton  # type: ignore[import-not-found,unused-ignore]
import triton.language as tl  # type: ignore[import-not-found,unused-ignore]


@triton.jit
def count(flags, PTX: tl.constexpr):
    """Of flags i32 of 32 lanes: how many lanes before each have it, and how many in all."""
    if PTX:
        before, total = tl.inline_asm_elementwise(
            """{
            .reg .pred p;
            .reg .b32 b, m;
            setp.ne.b32 p, $2, 0;
            vote.sync.ballot.b32 b, p, 0xffffffff;
            mov.u32 m, %lanemask_lt;
            and.b32 m, m, b;
            popc.b32 $0, m;
            popc.b32 $1, b;
            }""",
            "=r,=r,r",
            [flags],
            dtype=(tl.int32, tl.int32),
            is_pure=False,
            pack=1,
        )
    else:
        before = tl.cumsum(flags, 0) - flags
        total = tl.zeros_like(flags) + tl.sum(flags, 0)
    return before, total


@triton.jit
def half(data, at, size, mask):
    """The u16 at bytes `at` of data; bytes from `size` on are 0 and not read."""
    low = tl.load(data + at, mask=mask & (at < size), other=0).to(tl.int32)
    high = tl.load(data + at + 1, mask=mask & (at + 1 < size), other=0).to(tl.int32)
    return low | (high << 8)


@triton.jit
def advance(x, slot, live, words, word_at, word_bytes, PTX: tl.constexpr):
    """The states after a symbol, and how many words were read."""
    after = ((slot >> 12) & 0xFFF) * (x >> 11) + (slot & 0xFFF)
    short = live & (after < 32768)
    before, total = count(short.to(tl.int32), PTX)
    word = half(words, 2 * (word_at + before), word_bytes, short)
    x = tl.where(live, tl.where(short, (after << 16) | word, after), x)
    return x, word_at + total


@triton.jit
def resolve(symbol, live, escapes, at, size, wide_escapes, PTX: tl.constexpr):
    """Symbols with the numbers that escapes stand for; bytes read; what is no escape, as i32."""
    lane = tl.arange(0, 32)
    escaped = live & (symbol == -128)
    wrong = tl.zeros_like(symbol)
    if wide_escapes != 0:
        # Where one has six bytes, those of others depend on it.
        if tl.max(escaped.to(tl.int32), 0) != 0:
            for k in range(32):
                if tl.sum(tl.where((lane == k) & escaped, 1, 0), 0) != 0:
                    narrow = (half(escapes, at, size, lane < 32) << 16) >> 16
                    wide = half(escapes, at + 2, size, lane < 32)
                    wide |= half(escapes, at + 4, size, lane < 32) << 16
                    six = narrow == -32768
                    far = (wide < -1048576) | (wide > 1048576)
                    bad = six & (((wide >= -32767) & (wide <= 32767)) | far)
                    wrong |= bad.to(tl.int32)
                    value = tl.where(bad, 0, tl.where(six, wide, narrow))
                    symbol = tl.where(lane == k, value, symbol)
                    at += tl.where(six, 6, 2)
    else:
        before, total = count(escaped.to(tl.int32), PTX)
        narrow = half(escapes, at + 2 * before, size, escaped)
        symbol = tl.where(escaped, (narrow << 16) >> 16, symbol)
        at += 2 * total
    return symbol, at, wrong


@triton.jit
def append_low(symbol, low, live, low_bits, bit_at, size):
    """Quanta from symbols and low bits; bits read; quanta beyond 2^20, as i32."""
    low = tl.where(live, low, 0)
    most = 1048576 >> low
    far = (symbol > most) | (symbol < -most)
    # So that no shift leaves 32 bits.
    symbol = tl.where(far, 0, symbol)
    bit = bit_at + tl.cumsum(low, 0) - low
    byte = bit >> 3
    bits = half(low_bits, byte, size, low > 0) | (half(low_bits, byte + 2, size, low > 0) << 16)
    symbol = (symbol << low) + ((bits >> (bit & 7)) & ((1 << low) - 1))
    return symbol, bit_at + tl.sum(low, 0), (far | (symbol > 1048576)).to(tl.int32)


@triton.jit
def bits_left(low_bits, bit_at, size):
    """Whether low bits are left or missing, or what fills the last byte is not 0, as i32."""
    size += tl.zeros_like(bit_at)
    last = half(low_bits, size - 1, size, size > 0) & 255
    left = 8 * size - bit_at
    filled = last >> (8 - tl.minimum(tl.maximum(left, 0), 8))
    return ((left < 0) | (left > 7)).to(tl.int32) | tl.where(left > 0, filled, 0)


@triton.jit
def has_wide(escapes, size):
    """Whether an escape may have six bytes: whether a half of the list is -32768."""
    lane = tl.arange(0, 32)
    found = tl.zeros_like(lane)
    for j in range(0, size, 64):
        at = j + 2 * lane
        found |= (half(escapes, at, size, at + 1 < size) == 32768).to(tl.int32)
    return tl.max(found, 0)
