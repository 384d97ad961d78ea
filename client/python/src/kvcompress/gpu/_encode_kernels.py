# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Triton kernels of the entropy encoder of `klt-profile`, section 5 of FORMAT.md.

32 lanes encode a block from its last row to its first, so that words and escapes are written from
the end of their part of the scratch memory on; then the parts of all blocks are put together.
"""

# Constants of a launch are in capitals, and Triton gives types to what it compiles.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
# ruff: noqa: ANN001, ANN202, N803

import triton  # type: ignore[import-not-found,unused-ignore]
import triton.language as tl  # type: ignore[import-not-found,unused-ignore]

from kvcompress.gpu._rans import count


@triton.jit
def _split(own_class, offset, live):
    """The table of each lane, below 28, and its low bits; none in lanes that are not live."""
    e = tl.minimum(tl.maximum(own_class + offset, 0), 71)
    low = tl.where(e < 28, 0, (e - 24) >> 2)
    return e - 4 * low, tl.where(live, low, 0)


@triton.jit
def _count_low(classes, offsets, components, runs, tokens):
    """How many low bits a block has."""
    lane = tl.arange(0, 32)
    total = tl.zeros_like(lane)
    for run in range(runs):
        live = 32 * run + lane < components
        own_class = tl.load(classes + 32 * run + lane, mask=live, other=0)
        for t in range(tokens):
            _, low = _split(own_class, tl.load(offsets + t).to(tl.int32), live)
            total += low
    return tl.sum(total, 0)


@triton.jit
def push(x, words, word_at, symbol, live, PTX: tl.constexpr):
    """States with a symbol in front, f << 16 | first, and where the words begin then."""
    frequency = symbol >> 16
    give = live & (x >= frequency << 20)
    before, total = count(give.to(tl.int32), PTX)
    word_at -= total
    tl.store(words + word_at + before, (x & 0xFFFF).to(tl.int16), mask=give)
    x = tl.where(give, x >> 16, x)
    whole = x // tl.maximum(frequency, 1)
    x = tl.where(live, (whole << 11) + (x - whole * frequency) + (symbol & 0xFFFF), x)
    return x, word_at


@triton.jit
def write_escapes(escapes, escape_at, value, escaped):
    """Writes the escapes of a row, of two or six bytes; returns where they begin."""
    six = escaped & ((value < -32767) | (value > 32767))
    size = tl.where(six, 6, tl.where(escaped, 2, 0))
    escape_at -= tl.sum(size, 0)
    at = escapes + escape_at + tl.cumsum(size, 0) - size
    first = tl.where(six, -32768, value)
    tl.store(at, (first & 255).to(tl.uint8), mask=escaped)
    tl.store(at + 1, ((first >> 8) & 255).to(tl.uint8), mask=escaped)
    for k in tl.static_range(4):
        tl.store(at + 2 + k, ((value >> (8 * k)) & 255).to(tl.uint8), mask=six)
    return escape_at


@triton.jit
def write_low(lows, low_at, quantum, low):
    """Writes the low bits of a row to words of 32 bits; returns where they begin."""
    low_at -= tl.sum(low, 0)
    bit = low_at + tl.cumsum(low, 0) - low
    word, shift = bit >> 5, bit & 31
    bits = quantum & ((1 << low) - 1)
    tl.atomic_or(lows + word, bits << shift, mask=low > 0)
    # Two shifts, since one by 32 is not defined.
    tl.atomic_or(lows + word + 1, (bits >> 1) >> (31 - shift), mask=(low > 0) & (shift + low > 32))
    return low_at


@triton.jit
def encode_kernel(
    quanta,  # i32 [rows, components]
    lasts,  # i32 [blocks], behind the last component that is not 0
    blocks,  # i64 [blocks, 3]: first row, tokens, first token
    classes,  # i32 [components], with the shift
    offsets,  # i8 [tokens of the payload]
    symbols,  # i32 [28, 64]: f << 16 | first of the symbols from -32 on, and of the escape
    largest,  # i32 [28], the largest symbol of each table
    words,  # i16, of all blocks
    escapes,  # u8
    lows,  # i32, zeros before
    states,  # i32 [blocks, 32]
    sizes,  # i32 [blocks, 4]: words, bytes of escapes and of low bits, runs
    components,
    word_room,
    escape_room,
    low_room,
    LOW: tl.constexpr,  # whether a class has low bits
    PTX: tl.constexpr,
):
    """Encodes a block in each program."""
    number = tl.program_id(0).to(tl.int64)
    quanta += tl.load(blocks + 3 * number) * components
    tokens = tl.load(blocks + 3 * number + 1).to(tl.int32)
    offsets += tl.load(blocks + 3 * number + 2)
    runs = (tl.load(lasts + number) + 31) // 32
    words += number * word_room
    escapes += number * escape_room
    lows += number * low_room
    lane = tl.arange(0, 32)
    x = tl.zeros_like(lane) + 32768
    word_at = tl.zeros_like(lane) + word_room
    escape_at = escape_room + runs * 0
    low_bits = runs * 0
    if LOW:
        low_bits = _count_low(classes, offsets, components, runs, tokens)
    low_at = low_bits
    for back in range(runs):
        component = 32 * (runs - 1 - back) + lane
        live = component < components
        own_class = tl.load(classes + component, mask=live, other=0)
        for k in range(tokens):
            t = tokens - 1 - k
            table, low = _split(own_class, tl.load(offsets + t).to(tl.int32), live)
            quantum = tl.load(quanta + t * components + component, mask=live, other=0)
            value = quantum >> low
            escaped = live & (tl.abs(value) > tl.load(largest + table))
            symbol = tl.load(symbols + table * 64 + tl.where(escaped, 63, value + 32))
            x, word_at = push(x, words, word_at, symbol, live, PTX)
            escape_at = write_escapes(escapes, escape_at, value, escaped)
            if LOW:
                low_at = write_low(lows, low_at, quantum, low)
    tl.store(states + 32 * number + lane, x)
    tl.store(sizes + 4 * number, tl.max(word_room - word_at, 0))
    tl.store(sizes + 4 * number + 1, escape_room - escape_at)
    tl.store(sizes + 4 * number + 2, (low_bits + 7) >> 3)
    tl.store(sizes + 4 * number + 3, runs)


@triton.jit
def copy_bytes(to, data, size, BLOCK: tl.constexpr):
    """Copies a part of some bytes, of which the programs of the second axis take turns."""
    for first in range(tl.program_id(1) * BLOCK, size, tl.num_programs(1) * BLOCK):
        i = first + tl.arange(0, BLOCK)
        tl.store(to + i, tl.load(data + i, mask=i < size, other=0), mask=i < size)


@triton.jit
def assemble_kernel(
    words,  # u8, and all others, as bytes
    escapes,
    lows,
    states,
    sizes,  # i32 [blocks, 4]
    begins,  # i64 [blocks]
    out,  # u8
    word_room,  # bytes
    escape_room,
    low_room,
    BLOCK: tl.constexpr,
):
    """Puts a part of a block together in each program."""
    number = tl.program_id(0).to(tl.int64)
    word_bytes = 2 * tl.load(sizes + 4 * number)
    escape_bytes = tl.load(sizes + 4 * number + 1)
    low_bytes = tl.load(sizes + 4 * number + 2)
    out += tl.load(begins + number)
    lane = tl.arange(0, 16)
    field = tl.where(lane < 4, 144 + word_bytes + escape_bytes + low_bytes, word_bytes // 2)
    field = tl.where(lane < 8, field, escape_bytes)
    field = tl.where(lane < 12, field, tl.load(sizes + 4 * number + 3))
    tl.store(out + lane, ((field >> (8 * (lane & 3))) & 255).to(tl.uint8))
    copy_bytes(out + 16, states + 128 * number, 128, BLOCK)
    out += 144
    copy_bytes(out, words + (number + 1) * word_room - word_bytes, word_bytes, BLOCK)
    out += word_bytes
    copy_bytes(out, escapes + (number + 1) * escape_room - escape_bytes, escape_bytes, BLOCK)
    out += escape_bytes
    copy_bytes(out, lows + number * low_room, low_bytes, BLOCK)
