# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Triton kernels that decode `lossless`, section 5 of FORMAT.md.

The first reads the models of coded planes, the second decodes these planes, and the third makes
elements of all planes. They read nothing outside of a plane, whatever it says.
"""

# Constants of a launch are in capitals, and Triton gives types to what it compiles.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
# ruff: noqa: ANN001, ANN202, N803

import triton  # type: ignore[import-not-found,unused-ignore]
import triton.language as tl  # type: ignore[import-not-found,unused-ignore]

from kvcompress.gpu._elements import locate, output
from kvcompress.gpu._rans import count, half


@triton.jit
def _read_model(data, size, frequencies):
    """Stores the frequencies of a model; the bytes it takes, their sum, and whether it breaks."""
    position = size * 0
    value = size * 0
    total = size * 0
    wrong = size * 0
    zeros = size * 0
    while value < 256:
        first = tl.load(data + position, mask=position < size, other=0).to(tl.int32)
        second = tl.load(data + position + 1, mask=position + 1 < size, other=0).to(tl.int32)
        short = (first > 0) & (first < 128)
        position += tl.where(short, 1, 2)
        long = ((first & 127) << 8) | second
        frequency = tl.where(short, first, tl.where(first == 0, 0, long))
        last = value + tl.where(first == 0, second, 0)
        bad = (position > size) | ((first == 0) & ((zeros != 0) | (last > 255)))
        bad = bad | ((first >= 128) & (frequency < 128))
        tl.store(frequencies + value, frequency, mask=bad == 0)
        total += frequency
        zeros = (first == 0).to(tl.int32)
        wrong = tl.where(bad, 1, wrong)
        value = tl.where(bad, 256, last + 1)
    return position, total, wrong


@triton.jit
def models_kernel(
    data,  # u8, payloads
    planes,  # i64 [., 4]: byte, size, elements, and place of a coded plane in the scratch memory
    frequencies,  # i32 [., 256], zeros before
    tables,  # i32 [., 4096]: symbol << 24 | f - 1 << 12 | slot - first
    begins,  # i32 [.], bytes of the models
    found,  # i32 [.], set for a plane that is broken
):
    """Reads the model of a coded plane in each program, and makes its table."""
    number = tl.program_id(0)
    plane = planes + number.to(tl.int64) * 4
    frequencies += number * 256
    size = tl.load(plane + 1).to(tl.int32)
    position, total, wrong = _read_model(data + tl.load(plane), size, frequencies)
    left = size - position
    wrong = tl.where((total != 4096) | (left < 64) | ((left & 1) != 0), 1, wrong)
    tl.store(begins + number, position)
    tl.store(found + number, wrong)
    tl.debug_barrier()
    end = tl.cumsum(tl.load(frequencies + tl.arange(0, 256)), 0)
    for first in range(0, 4096, 64):
        slot = first + tl.arange(0, 64)
        before = end[None, :] <= slot[:, None]
        symbol = tl.minimum(tl.sum(before.to(tl.int32), 1), 255)
        offset = slot - tl.max(tl.where(before, end[None, :], 0), 1)
        frequency = tl.load(frequencies + symbol)
        packed = (symbol << 24) | (((frequency - 1) & 0xFFF) << 12) | (offset & 0xFFF)
        tl.store(tables + number.to(tl.int64) * 4096 + slot, packed)


@triton.jit
def coded_bytes_kernel(
    data,
    planes,
    tables,
    begins,
    scratch,  # u8
    found,
    PTX: tl.constexpr,
):
    """Decodes a coded plane in each program, with 16 of its 32 lanes."""
    number = tl.program_id(0)
    plane = planes + number.to(tl.int64) * 4
    begin = tl.load(begins + number)
    words = data + tl.load(plane) + begin
    size = tl.load(plane + 1).to(tl.int32) - begin
    elements = tl.load(plane + 2).to(tl.int32)
    out = scratch + tl.load(plane + 3)
    table = tables + number.to(tl.int64) * 4096
    lane = tl.arange(0, 32)
    own = lane < 16
    x = half(words, 4 * lane, size, own).to(tl.uint32)
    x |= half(words, 4 * lane + 2, size, own).to(tl.uint32) << 16
    wrong = own & (x < 65536)
    word_at = 32 + tl.zeros_like(lane)
    for row in range((elements + 15) // 16):
        element = 16 * row + lane
        live = own & (element < elements)
        slot = tl.load(table + (x & 4095).to(tl.int32), mask=live, other=0)
        tl.store(out + element, (slot >> 24).to(tl.uint8), mask=live)
        frequency = ((slot >> 12) & 0xFFF).to(tl.uint32) + 1
        after = frequency * (x >> 12) + (slot & 0xFFF).to(tl.uint32)
        short = live & (after < 65536)
        before, total = count(short.to(tl.int32), PTX)
        word = half(words, 2 * (word_at + before), size, short).to(tl.uint32)
        x = tl.where(live, tl.where(short, (after << 16) | word, after), x)
        word_at += total
    wrong = wrong | (own & (x != 65536)) | (2 * word_at != size)
    if tl.max(wrong.to(tl.int32), 0) != 0:
        tl.store(found + number, 1)


@triton.jit
def _byte(data, scratch, plane, i, live):
    """Bytes of a plane: of a payload, or decoded; of all elements the same where it has one."""
    decoded = tl.load(plane) + tl.zeros_like(i)
    at = tl.load(plane + 1) + i * tl.load(plane + 2)
    given = tl.load(data + at, mask=live & (decoded == 0), other=0)
    return given | tl.load(scratch + at, mask=live & (decoded != 0), other=0)


@triton.jit
def planes_kernel(
    data,
    scratch,
    blocks,  # i64 [., 3]: place, first element, how many
    planes,  # i64 [blocks * SIZE, 3]: whether it was decoded, its first byte, bytes of an element
    places,
    token_slots,
    SIZE: tl.constexpr,
    FORM: tl.constexpr,  # of the upper bytes: "16" bits with a sign, "64" bits, or "bytes"
    SPLIT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Makes elements of a part of a block in each program."""
    block = blocks + tl.program_id(0).to(tl.int64) * 3
    place = places + tl.load(block) * 14
    part = tl.program_id(1) * BLOCK
    k = tl.arange(0, BLOCK)
    live = part + k < tl.load(block + 2)
    bits = tl.zeros([BLOCK], tl.int64)
    plane = planes + tl.program_id(0).to(tl.int64) * SIZE * 3
    first = _byte(data, scratch, plane, part + k, live).to(tl.int64)
    if FORM == "bytes":
        bits = first << (8 * SIZE - 8)
    else:
        second = _byte(data, scratch, plane + 3, part + k, live).to(tl.int64)
        if FORM == "16":
            upper = ((second & 128) << 8) | (first << 7) | (second & 127)
            bits = upper << (8 * SIZE - 16)
        else:
            exponent = (((((second >> 4) & 7) << 8) | first) + 896) & 2047
            bits = ((second >> 7) << 63) | (exponent << 52) | ((second & 15) << 48)
    for p in tl.static_range(1 if FORM == "bytes" else 2, SIZE):
        byte = _byte(data, scratch, plane + 3 * p, part + k, live).to(tl.int64)
        bits |= byte << (8 * (SIZE - 1 - p))
    at, live = locate(place, token_slots, tl.load(block + 1) + part, k, live, SPLIT)
    out = output(place, SIZE)
    tl.store(out + at, bits.to(out.dtype.element_ty), mask=live)
