# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Triton kernels that decode blocks of `ecsq`, section 5 of FORMAT.md.

The first decodes symbols to integers, with one program of 32 lanes for a block; the second makes
elements of these; the third replaces exceptions. They read nothing outside of a block, whatever it
says. Blocks are rows i64 [24] and tensors rows i64 [12], whose numbers `_ecsq` names. Of each block
`scratch` has its classes, means, norms, and quanta [tokens without integer sinks, channels].
"""

# Constants of a launch are in capitals, and Triton gives types to what it compiles.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
# ruff: noqa: ANN001, ANN202, N803

import triton  # type: ignore[import-not-found,unused-ignore]
import triton.language as tl  # type: ignore[import-not-found,unused-ignore]

from kvcompress.gpu._elements import element_bits, offset_of, output
from kvcompress.gpu._rans import advance, append_low, bits_left, half, has_wide, resolve


@triton.jit
def number(row, column):
    """A number of a table that 32 bits hold."""
    return tl.load(row + column).to(tl.int32)


@triton.jit
def shift_of(tensor, token):
    """How often the steps of tokens are halved."""
    recent = token + number(tensor, 3) >= number(tensor, 7)
    shift = tl.where(recent, number(tensor, 4), 0)
    return tl.where(token < number(tensor, 1), number(tensor, 2), shift)


@triton.jit
def read_row(slots, table, live, streams, state, PTX: tl.constexpr):
    """A row of symbols, and the state of the decoder behind it.

    streams: words, escapes, low bits, the bytes of each, and whether an escape has six bytes.
    state: of the lanes; words, bytes of escapes and low bits that were read; what is broken, i32.
    """
    x, word_at, escape_at, bit_at, wrong = state
    slot = tl.load(slots + table * 2048 + (x & 2047), mask=live, other=0)
    x, word_at = advance(x, slot, live, streams[0], word_at, streams[3], PTX)
    symbol, escape_at, bad = resolve(
        slot >> 24, live, streams[1], escape_at, streams[4], streams[6], PTX
    )
    return symbol, (x, word_at, escape_at, bit_at, wrong | bad)


@triton.jit
def with_low(value, low, live, streams, state):
    """Appends low bits to a row, each with its own number of them."""
    x, word_at, escape_at, bit_at, wrong = state
    value, bit_at, bad = append_low(value, low, live, streams[2], bit_at, streams[5])
    return value, (x, word_at, escape_at, bit_at, wrong | bad)


@triton.jit
def read_numbers(slots, streams, state, lanes, out, count, form, PTX: tl.constexpr):
    """Reads numbers, as many in a row as there are lanes, and stores them.

    form: their table, low bits, middle, least and most. What is out of range is broken, and 0.
    """
    lane = tl.arange(0, 32)
    for row in range((count + lanes - 1) // lanes):
        place = row * lanes + lane
        live = (lane < lanes) & (place < count)
        value, state = read_row(slots, tl.zeros_like(lane) + form[0], live, streams, state, PTX)
        if form[1] > 0:
            value, state = with_low(value, tl.zeros_like(lane) + form[1], live, streams, state)
        value += form[2]
        bad = live & ((value < form[3]) | (value > form[4]))
        tl.store(out + place, tl.where(bad, 0, value), mask=live)
        x, word_at, escape_at, bit_at, wrong = state
        state = (x, word_at, escape_at, bit_at, wrong | bad.to(tl.int32))
    return state


@triton.jit
def _read_quanta(slots, streams, state, block, tensor, classes, quanta, PTX: tl.constexpr):
    """Reads the quanta of all runs of 32 channels."""
    lane = tl.arange(0, 32)
    tokens, sinks = number(block, 6), number(block, 7)
    channels = number(block, 5) * number(tensor, 6)
    most = tl.maximum(number(tensor, 2), number(tensor, 4))
    for run in range((channels + 31) // 32):
        channel = 32 * run + lane
        live = channel < channels
        own_class = tl.load(classes + channel, mask=live, other=0)
        has_low = tl.max(own_class, 0) + 4 * most >= 28
        for t in range(sinks, tokens):
            e = own_class + 4 * shift_of(tensor, number(block, 8) + t)
            low = tl.where(e < 28, 0, (e - 24) >> 2)
            value, state = read_row(slots, e - 4 * low, live, streams, state, PTX)
            if has_low:
                value, state = with_low(value, low, live, streams, state)
            tl.store(quanta + (t - sinks) * channels + channel, value, mask=live)
    return state


@triton.jit
def open_block(data, block, channels):
    """The lanes of a block, its streams, and the state of the decoder before the first row."""
    lanes = tl.minimum(channels, 32)
    word_bytes, escape_bytes, low_bytes = (
        2 * number(block, 1),
        number(block, 2),
        number(block, 3),
    )
    data += tl.load(block)
    words = data + 4 * lanes
    escapes = words + word_bytes
    low_bits = escapes + escape_bytes + number(block, 4)
    wide = has_wide(escapes, escape_bytes)
    streams = (words, escapes, low_bits, word_bytes, escape_bytes, low_bytes, wide)
    lane = tl.arange(0, 32)
    own = lane < lanes
    x = half(data, 4 * lane, 4 * lanes, own)
    x |= half(data, 4 * lane + 2, 4 * lanes, own) << 16
    # As integers with a sign, states from 2^31 on are negative.
    wrong = (own & (x < 32768)).to(tl.int32)
    zeros = tl.zeros_like(lane)
    return lanes, streams, (tl.where(own, x, 32768), zeros, zeros, zeros, wrong)


@triton.jit
def read_side(slots, streams, state, lanes, block, channels, out, norms, PTX: tl.constexpr):
    """Reads the classes and means of channels to `out`, then so many norms."""
    form = (number(block, 13), 0, number(block, 12), 0, 71)
    state = read_numbers(slots, streams, state, lanes, out, channels, form, PTX)
    form = (number(block, 14), number(block, 15), 0, -262144, 262144)
    state = read_numbers(slots, streams, state, lanes, out + channels, channels, form, PTX)
    form = (number(block, 11), 0, number(block, 10), 0, 0x7F7)
    return read_numbers(slots, streams, state, lanes, out + 2 * channels, norms, form, PTX)


@triton.jit
def close_block(streams, state, found):
    """Stores whether a block is broken, behind its last row."""
    _, _, low_bits, word_bytes, escape_bytes, low_bytes, _ = streams
    x, word_at, escape_at, bit_at, wrong = state
    wrong |= ((x != 32768) | (2 * word_at != word_bytes)).to(tl.int32)
    wrong |= (escape_at != escape_bytes).to(tl.int32) | bits_left(low_bits, bit_at, low_bytes)
    tl.store(found, tl.max((wrong != 0).to(tl.int32), 0))


@triton.jit
def ecsq_entropy_kernel(
    data,  # u8, payloads
    blocks,
    tensors,
    slots,  # i32 [56, 2048], as entropy_kernel takes them
    scratch,  # i32
    found,  # i32 [blocks], set for a block that is broken
    PTX: tl.constexpr,
):
    """Decodes the integers of a block in each program."""
    block = blocks + tl.program_id(0).to(tl.int64) * 24
    tensor = tensors + tl.load(block + 16) * 12
    channels = number(block, 5) * number(tensor, 6)
    lanes, streams, state = open_block(data, block, channels)
    classes = scratch + tl.load(block + 9)
    norms = number(block, 5) * number(block, 6) * (number(tensor, 0) & 1)
    state = read_side(slots, streams, state, lanes, block, channels, classes, norms, PTX)
    # Lanes may be other threads than those that stored the classes.
    tl.debug_barrier()
    quanta = classes + 2 * channels + norms
    state = _read_quanta(slots, streams, state, block, tensor, classes, quanta, PTX)
    close_block(streams, state, found + tl.program_id(0))


@triton.jit
def power(exponent):
    """2^-exponent."""
    return ((127 - exponent) << 23).to(tl.float32, bitcast=True)


@triton.jit
def _values(tensor, source, channel, live, JOINT: tl.constexpr):
    """Elements before norms and rotation.

    source: the side, which has the means, (head, quanta, sinks), and the token, channels and shift.
    With JOINT elements are there already, in place of quanta.
    """
    side, index, t, channels, shift = source
    column = index[0] * number(tensor, 6) + channel
    at = (t - index[2]) * channels + column
    quantum = tl.load(index[1] + at, mask=live & (t >= index[2]), other=0)
    if JOINT:
        value = quantum.to(tl.float32, bitcast=True)
    else:
        mean = tl.load(side + channels + column, mask=live, other=0)
        step = tl.load(tensor + 5).to(tl.int32).to(tl.float32, bitcast=True)
        unit = step * ((124 - shift) << 23).to(tl.float32, bitcast=True)
        value = (8 * quantum + (mean << shift)).to(tl.float32) * unit
    return value


@triton.jit
def pair_of(tensor, channel):
    """Of channels whether they are rotated, whether second of their pairs, these, and the other."""
    pairs = number(tensor, 9)
    within = channel - number(tensor, 8)
    interleaved = (number(tensor, 0) & 4) != 0
    second = tl.where(interleaved, within & 1, (within >= pairs).to(tl.int32)) != 0
    pair = tl.where(interleaved, within >> 1, tl.where(second, within - pairs, within))
    step = tl.where(interleaved, 1, pairs)
    other = channel + tl.where(second, -step, step)
    return (within >= 0) & (within < 2 * pairs), second, pair, other


@triton.jit
def _rotate(z, tensor, place, rotations, source, token, channel, live, JOINT: tl.constexpr):
    """Rotates elements, whose partners are computed again, by cosines and sines of the range."""
    inside = token.to(tl.int64) - tl.load(place + 12)
    paired, second, pair, other = pair_of(tensor, channel)
    rotated = live & paired & (inside >= 0) & (token < tl.load(place + 13))
    other = tl.where(rotated, other, channel)
    factor = power(number(tensor, 10))
    partner = _values(tensor, source, other, live, JOINT) * factor
    own = tl.where(rotated, z * factor, z)
    at = rotations + 2 * (tl.load(tensor + 11) + inside * number(tensor, 9) + pair)
    cosine = tl.load(at, mask=rotated, other=1.0)
    sine = tl.load(at + 1, mask=rotated, other=0.0)
    both = tl.where(second, own * cosine + partner * sine, own * cosine - partner * sine)
    return tl.where(rotated, both, own)


@triton.jit
def _replace_sinks(z, data, block, index, t, channel, width, found, live):
    """Elements with those of integer sinks, which begin behind the escapes."""
    head, _, sinks = index
    heads = number(block, 5)
    sink = live & (t < sinks)
    data += tl.load(block) + 4 * tl.minimum(heads * width, 32)
    data += 2 * tl.load(block + 1) + tl.load(block + 2)
    row = head * sinks + t
    bits = half(data, 2 * row, 2 * heads * sinks, sink)
    code = tl.load(data + 2 * heads * sinks + row * width + channel, mask=sink, other=0)
    code = code.to(tl.int8, bitcast=True)
    wrong = sink & ((bits >= 0x7F80) | (code == -128))
    if tl.max(wrong.to(tl.int32), 0) != 0:
        tl.store(found + tl.program_id(0), 1)
    scale = (tl.where(wrong, 0, bits) << 16).to(tl.float32, bitcast=True)
    return tl.where(sink, code.to(tl.float32) * scale, z)


@triton.jit
def ecsq_elements_kernel(
    data,
    blocks,
    tensors,
    places,  # i64 [tensors, 14]
    token_slots,
    rotations,  # f32, cosines and sines of rotation_kernel, tensor by tensor
    scratch,
    found,
    DTYPE: tl.constexpr,
    SIZE: tl.constexpr,
    SPLIT: tl.constexpr,
    JOINT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Makes elements of a part of a block in each program."""
    block = blocks + tl.program_id(0).to(tl.int64) * 24
    tensor = tensors + tl.load(block + 16) * 12
    place = places + tl.load(block + 16) * 14
    tokens, sinks, heads = number(block, 6), number(block, 7), number(block, 5)
    width, flags = number(tensor, 6), number(tensor, 0)
    channels = heads * width
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    live = i < channels * tokens
    channel = i % width
    t = i // width % tokens
    head = tl.minimum(i // width // tokens, heads - 1)
    token = number(block, 8) + t
    shift = shift_of(tensor, token)
    side = scratch + tl.load(block + 9)
    norms = side + 2 * channels
    index = (head, norms + heads * tokens * (flags & 1), sinks)
    source = (side, index, t, channels, shift)
    z = _values(tensor, source, channel, live, JOINT)
    if (flags & 1) != 0:
        norm = tl.load(norms + head * tokens + t, mask=live, other=0)
        z = z * (norm << 20).to(tl.float32, bitcast=True)
    if (flags & 2) != 0:
        z = _rotate(z, tensor, place, rotations, source, token, channel, live, JOINT)
    if sinks > 0:
        z = _replace_sinks(z, data, block, index, t, channel, width, found, live)
    whole = tl.load(block + 17) + head
    each = tl.load(place + 1)
    at, live = offset_of(
        place, token_slots, whole // each, (whole % each).to(tl.int32), token, channel, live, SPLIT
    )
    tl.store(output(place, SIZE) + at, element_bits(z, DTYPE), mask=live)


@triton.jit
def _is_finite(bits, DTYPE: tl.constexpr):
    """Whether an element is a number that binary32 holds."""
    if DTYPE == "F64":
        value = tl.abs(bits.to(tl.float64, bitcast=True).to(tl.float32))
        finite = value < float("inf")
    elif DTYPE == "F32":
        finite = (bits & 0x7F800000) != 0x7F800000
    elif DTYPE == "F16":
        finite = (bits & 0x7C00) != 0x7C00
    elif DTYPE == "BF16":
        finite = (bits & 0x7F80) != 0x7F80
    elif DTYPE == "F8_E4M3":
        finite = (bits & 0x7F) != 0x7F
    else:
        finite = (bits & 0x7C) != 0x7C
    return finite


@triton.jit
def _read_gap(data, position, size):
    """The gap at a byte of a list, the byte behind it, and whether it breaks a rule."""
    one = tl.load(data + position).to(tl.int32)
    two = tl.load(data + position + 1, mask=position + 1 < size, other=0).to(tl.int32)
    three = tl.load(data + position + 2, mask=position + 2 < size, other=0).to(tl.int32)
    has_two = one >= 128
    has_three = has_two & (two >= 128)
    # Only one that is alone may be 0, and the third is the last; those behind the end are 0.
    last = tl.where(has_three, three, tl.where(has_two, two, 1))
    gap = one & 127
    gap += tl.where(has_two, (two & 127) << 7, 0)
    gap += tl.where(has_three, (three & 127) << 14, 0)
    position += 1 + has_two.to(tl.int32) + has_three.to(tl.int32)
    return gap, position, (last == 0) | (last >= 128)


@triton.jit
def ecsq_exceptions_kernel(
    data,
    blocks,
    tensors,
    places,
    token_slots,
    found,
    DTYPE: tl.constexpr,
    SIZE: tl.constexpr,
    SPLIT: tl.constexpr,
):
    """Replaces the exceptions of a block in each program, one after the other."""
    block = blocks + tl.program_id(0).to(tl.int64) * 24
    tensor = tensors + tl.load(block + 16) * 12
    place = places + tl.load(block + 16) * 14
    tokens, width, heads = number(block, 6), number(tensor, 6), number(block, 5)
    size = number(block, 18)
    data += tl.load(block + 19)
    position = size * 0
    element = size * 0
    wrong = size * 0
    while position < size:
        gap, position, bad = _read_gap(data, position, size)
        element += gap
        bad = bad | (position + SIZE > size) | (element >= heads * tokens * width)
        bits = tl.zeros([], tl.int64)
        for k in tl.static_range(SIZE):
            byte = tl.load(data + position + k, mask=bad == 0, other=0)
            bits |= byte.to(tl.int64) << (8 * k)
        bad = bad | (_is_finite(bits, DTYPE) == 0)
        whole = tl.load(block + 17) + element // width // tokens
        each = tl.load(place + 1)
        token = number(block, 8) + element // width % tokens
        at, live = offset_of(
            place, token_slots, whole // each, whole % each, token, element % width, bad == 0, SPLIT
        )
        out = output(place, SIZE)
        tl.store(out + at, bits.to(out.dtype.element_ty), mask=live)
        wrong = tl.where(bad, 1, wrong)
        position = tl.where(bad, size, position + SIZE)
        element += 1
    if wrong != 0:
        tl.store(found + tl.program_id(0), 1)
