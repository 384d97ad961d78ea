# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Triton kernels from levels to elements of `klt-profile`, section 5 of FORMAT.md.

The same source runs on GPUs and, with TRITON_INTERPRET=1, on the CPU. Results are exact: sums are
of integers, and binary32 is computed without contraction (`enable_fp_fusion=False`). A *row* is a
coded token; a *tile* of rows lies within blocks of a batch that follow one another.
"""

# Constants of a launch are in capitals, and Triton gives types to what it compiles.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
# ruff: noqa: ANN001, ANN202, N803, N806

import triton  # type: ignore[import-not-found,unused-ignore]
import triton.language as tl  # type: ignore[import-not-found,unused-ignore]

from kvcompress.gpu._elements import element_bits, tile_of


@triton.jit
def _product_shift(x, y):
    """Floor of x y / 2^31, in 64 bits."""
    return (x * y) >> 31


@triton.jit(do_not_specialize=["first", "tokens"])
def rotation_kernel(increments, rotations, first, tokens, angles, BLOCK: tl.constexpr):
    """Cosines and sines f32 [tokens, angles, 2] of the positions from `first` on.

    Increments i64 [angles], in turns of 2^64; integers as in "Rotation" of `ecsq`.
    """
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i // angles < tokens
    increment = tl.load(increments + i % angles, mask=inside, other=0)
    phase = (first + i // angles) * increment  # modulo 2^64
    u = (phase >> 32) & 0xFFFFFFFF
    quadrant = ((u + 0x20000000) & 0xFFFFFFFF) >> 30
    v = u - (quadrant << 30)
    v = ((v + 0x80000000) & 0xFFFFFFFF) - 0x80000000
    g = (v * 0x6487ED51) >> 29
    w = _product_shift(g, g)
    s = _product_shift(w, -53 + tl.zeros_like(w))
    s = _product_shift(w, 5917 + s)
    s = _product_shift(w, -426088 + s)
    s = _product_shift(w, 17895697 + s)
    s = _product_shift(w, -357913941 + s)
    s = g + _product_shift(g, s)
    c = _product_shift(w, -591 + tl.zeros_like(w))
    c = _product_shift(w, 53261 + c)
    c = _product_shift(w, -2982616 + c)
    c = _product_shift(w, 89478485 + c)
    c = _product_shift(w, -1073741824 + c)
    c = 2147483648 + c
    odd = (quadrant & 1) == 1
    upper = quadrant >= 2
    cosine = tl.where(odd, -s, c)
    sine = tl.where(odd, c, s)
    cosine = tl.where(upper, -cosine, cosine)
    sine = tl.where(upper, -sine, sine)
    scale = 4.656612873077393e-10  # 2^-31
    tl.store(rotations + 2 * i, cosine.to(tl.float32) * scale, mask=inside)
    tl.store(rotations + 2 * i + 1, sine.to(tl.float32) * scale, mask=inside)


@triton.jit
def row_sums_kernel(
    tiles,  # i64 [., 7], as `GroupPlan.tiles` makes them, of at most BM rows each
    low_plane,  # i8 [rows, low_width], of entropy_kernel
    high_plane,  # i8 [rows, high_width]
    sums,  # i32 [rows], the sum of the levels of each row
    high_ends,  # i32 [tiles], where the components with a high plane end
    found,  # i32 [blocks, 2], of entropy_kernel
    low_width,
    high_width,
    BM: tl.constexpr,
    BK: tl.constexpr,
):
    """Sums rows, and finds those of more than 65538 in magnitude: products may pass 32 bits."""
    tile = tiles + tl.program_id(0).to(tl.int64) * 7
    count = tl.load(tile + 1).to(tl.int32)
    components = tl.load(tile + 4).to(tl.int32)
    i = tl.arange(0, BM)
    rows = tl.load(tile) + tl.minimum(i, count - 1)
    k = tl.arange(0, BK)
    total = tl.zeros([BM], tl.int32)
    magnitude = tl.zeros([BM], tl.int32)
    for j in range(0, components, BK):
        low = tl.load(low_plane + rows[:, None] * low_width + (j + k)[None, :]).to(tl.int32)
        total += tl.sum(low, 1)
        magnitude += tl.sum(tl.abs(low), 1)
    k = tl.arange(0, 32)
    high_end = 0
    for j in range(0, tl.minimum(high_width, components), 32):
        high = tl.load(high_plane + rows[:, None] * high_width + (j + k)[None, :]).to(tl.int32)
        part = 256 * tl.sum(tl.abs(high), 1)
        total += 256 * tl.sum(high, 1)
        magnitude += part
        if tl.max(part, 0) != 0:
            high_end = j + 32
    tl.store(high_ends + tl.program_id(0), high_end)
    tl.store(sums + rows, total, mask=i < count)
    if tl.max(magnitude, 0) > 65538:
        for block in range(tl.load(tile + 5), tl.load(tile + 6) + 1):
            tl.store(found + 2 * block + 1, 1)


@triton.jit
def _elements(
    sum_a, sum_b, token, place, factors, channels, pairs, rotations, width, angles, NP: tl.constexpr
):
    """Scales sums f32 [BM, NP] of the first and second channels, adds means, and rotates pairs.

    channels: f32 [4, width]: scales of first and second channels, then their means. pairs: i32
    [width], column of `rotations` [tokens, angles, 2], -1 for pairs that are not rotated. The fifth
    number of a place has the bits of the tensor's unit.
    """
    p = tl.load(place) * NP + tl.arange(0, NP)
    factor = tl.load(factors + token)[:, None]
    unit = tl.load(place + 4).to(tl.int32).to(tl.float32, bitcast=True)
    mean_a = tl.load(channels + 2 * width + p)[None, :]
    mean_b = tl.load(channels + 3 * width + p)[None, :]
    a = sum_a * (factor * (tl.load(channels + p) * unit)[None, :]) + mean_a
    b = sum_b * (factor * (tl.load(channels + width + p) * unit)[None, :]) + mean_b
    pair = tl.load(pairs + p)[None, :]
    if tl.max(pair) >= 0:
        at = rotations + 2 * (token[:, None] * angles + pair)
        cosine = tl.load(at, mask=pair >= 0, other=1.0)
        sine = tl.load(at + 1, mask=pair >= 0, other=0.0)
        rotated_a = a * cosine - b * sine
        rotated_b = b * cosine + a * sine
        a = tl.where(pair >= 0, rotated_a, a)
        b = tl.where(pair >= 0, rotated_b, b)
    return a, b


@triton.jit
def _write(
    a,
    b,
    tile,
    token,
    inside,
    place,
    token_slots,
    NP: tl.constexpr,
    DTYPE: tl.constexpr,
    ALIGNED: tl.constexpr,
):
    """Rounds elements f32 [BM, NP] and stores them.

    token_slots: i64 [tokens of the range], place of each token along its stride, -1 for none.
    place: i64: tile of the basis, address of the tensor, its strides over batches and tokens in
    elements, its unit; from 8 on the places of the NP first and then of the NP second channels in
    a token's row, -1 for none. With ALIGNED every eight of them follow one another from a multiple
    of 8 on, there is no -1, strides are multiples of 8 and addresses of 16.
    """
    if DTYPE == "F32":
        out = tl.load(place + 1).to(tl.pointer_type(tl.int32))
    else:
        out = tl.load(place + 1).to(tl.pointer_type(tl.int16))
    slot = tl.load(token_slots + token)
    row = tl.load(tile + 3) * tl.load(place + 2) + slot * tl.load(place + 3)
    place_a = tl.load(place + 8 + tl.arange(0, NP))
    place_b = tl.load(place + 8 + NP + tl.arange(0, NP))
    inside_a = (inside & (slot >= 0))[:, None]
    inside_b = inside_a
    if ALIGNED:
        out = tl.multiple_of(out, 16)
        row = tl.multiple_of(row, 8)
        place_a = tl.max_contiguous(tl.multiple_of(place_a, 8), 8)
        place_b = tl.max_contiguous(tl.multiple_of(place_b, 8), 8)
    else:
        inside_a = inside_a & (place_a >= 0)[None, :]
        inside_b = inside_b & (place_b >= 0)[None, :]
    tl.store(out + row[:, None] + place_a[None, :], element_bits(a, DTYPE), mask=inside_a)
    tl.store(out + row[:, None] + place_b[None, :], element_bits(b, DTYPE), mask=inside_b)


@triton.jit
def _multiply_high(high_plane, basis, end, BM: tl.constexpr, BN: tl.constexpr):
    """256 times the product of the high plane, in the high plane of the basis; zeros in the low."""
    k = tl.arange(0, 32)
    accumulator = tl.zeros([BM, BN], tl.int32)
    for j in tl.range(0, end, 32, num_stages=1):
        level = tl.load(high_plane + (j + k)[None, :])
        vector = tl.load(basis + (j + k)[None, :])
        accumulator = tl.dot(level, tl.trans(vector), accumulator, out_dtype=tl.int32)
    high, low = tl.split(tl.reshape(accumulator, [BM, BN // 2, 2]))
    return tl.reshape(tl.join(high * 256 + low, tl.zeros_like(low)), [BM, BN])


@triton.jit(do_not_specialize=["columns"])
def product_kernel(
    tiles,
    low_plane,
    high_plane,
    basis,  # i8 [4 width, basis_width], as `Basis` makes it: v = 256 high + low + 128
    high_ends,
    sums,
    factors,  # f32 [tokens of the range], the step of each token
    channels,
    pairs,
    rotations,
    token_slots,
    places,  # i64 [columns, 8 + 2 NP]
    low_width,
    high_width,
    basis_width,
    width,
    angles,
    columns,
    BM: tl.constexpr,
    BK: tl.constexpr,
    NP: tl.constexpr,
    HIGH: tl.constexpr,
    DTYPE: tl.constexpr,
    ALIGNED: tl.constexpr,
):
    """Multiplies a tile of rows by one of NP pairs of channels. The rest: of the functions above.

    A row within 65538 keeps to 32 bits: its sums are below 2^31, and others wrap on the way.
    """
    number, column = tile_of(columns)
    tile = tiles + number * 7
    place = places + column * (8 + 2 * NP)
    count = tl.load(tile + 1).to(tl.int32)
    components = tl.load(tile + 4).to(tl.int32)
    BN: tl.constexpr = 4 * NP
    i = tl.arange(0, BM)
    rows = tl.load(tile) + tl.minimum(i, count - 1)
    basis += (tl.load(place) * BN + tl.arange(0, BN))[:, None] * basis_width
    accumulator = tl.zeros([BM, BN], tl.int32)
    if HIGH:
        end = tl.minimum(tl.load(high_ends + number), components)
        high_rows = high_plane + rows[:, None] * high_width
        accumulator = _multiply_high(high_rows, basis, end, BM, BN)
    k = tl.arange(0, BK)
    for j in range(0, components, BK):
        level = tl.load(low_plane + rows[:, None] * low_width + (j + k)[None, :])
        vector = tl.load(basis + (j + k)[None, :])
        accumulator = tl.dot(level, tl.trans(vector), accumulator, out_dtype=tl.int32)
    high, low = tl.split(tl.reshape(accumulator, [BM, BN // 16, 2, 4, 2]))
    total = high * 256 + low + (tl.load(sums + rows) * 128)[:, None, None, None]
    a, b = tl.split(tl.permute(total, (0, 1, 3, 2)))
    a = tl.reshape(a, [BM, NP]).to(tl.float32)
    b = tl.reshape(b, [BM, NP]).to(tl.float32)
    token = tl.load(tile + 2) + tl.minimum(i, count - 1)
    a, b = _elements(a, b, token, place, factors, channels, pairs, rotations, width, angles, NP)
    _write(a, b, tile, token, i < count, place, token_slots, NP, DTYPE, ALIGNED)


@triton.jit
def finish_kernel(
    tiles,
    sums,  # f32 [rows, 2, NP], of one tile of pairs
    factors,
    channels,
    pairs,
    rotations,
    token_slots,
    places,
    width,
    angles,
    column,
    BM: tl.constexpr,
    NP: tl.constexpr,
    DTYPE: tl.constexpr,
    ALIGNED: tl.constexpr,
):
    """Makes elements of sums that were computed elsewhere."""
    tile = tiles + tl.program_id(0).to(tl.int64) * 7
    place = places + column * (8 + 2 * NP)
    count = tl.load(tile + 1).to(tl.int32)
    i = tl.arange(0, BM)
    rows = tl.load(tile) + tl.minimum(i, count - 1)
    at = sums + rows[:, None] * (2 * NP) + tl.arange(0, NP)[None, :]
    token = tl.load(tile + 2) + tl.minimum(i, count - 1)
    a, b = tl.load(at), tl.load(at + NP)
    a, b = _elements(a, b, token, place, factors, channels, pairs, rotations, width, angles, NP)
    _write(a, b, tile, token, i < count, place, token_slots, NP, DTYPE, ALIGNED)


@triton.jit
def patch_kernel(places, bits, count, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    """Stores elements of 2 or 4 bytes at their addresses, which differ.

    places: i64 [count]. bits: i16 or i32 [count].
    """
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < count
    address = tl.load(places + i, mask=inside, other=0)
    if SIZE == 4:
        out = address.to(tl.pointer_type(tl.int32))
    else:
        out = address.to(tl.pointer_type(tl.int16))
    tl.store(out, tl.load(bits + i, mask=inside, other=0), mask=inside)
