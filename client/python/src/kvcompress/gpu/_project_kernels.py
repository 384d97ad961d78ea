# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Triton kernels from elements to quanta of `klt-profile`.

A *row* is a coded token; rows of a launch follow one another. Columns are the channels of a group
in the order of tiles of pairs: the first channels of a tile, then the second ones.
"""

# Constants of a launch are in capitals, and Triton gives types to what it compiles.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
# ruff: noqa: ANN001, ANN202, N803

import triton  # type: ignore[import-not-found,unused-ignore]
import triton.language as tl  # type: ignore[import-not-found,unused-ignore]

from kvcompress.gpu._elements import float_of, tile_of


@triton.jit
def _read(source, at, live, DTYPE: tl.constexpr):
    """Elements as f32, 0 where they are not live."""
    return float_of(tl.load(source + at, mask=live, other=0), DTYPE)


@triton.jit
def _store_left(out, x, y, scale, inside, found, NP: tl.constexpr, NARROW: tl.constexpr):
    """Scales and stores elements of pairs; finds those that are not finite or too large."""
    finite = (tl.abs(x) < float("inf")) & (tl.abs(y) < float("inf"))
    if tl.max((inside & (finite == 0)).to(tl.int32)) != 0:
        tl.store(found, 1)
    x = tl.where(finite, x * scale, 0.0)
    y = tl.where(finite, y * scale, 0.0)
    if NARROW:
        largest = tl.max(tl.where(inside, tl.maximum(tl.abs(x), tl.abs(y)), 0.0))
        if largest >= 65504.0:
            tl.store(found + 2, 1)
        # No infinity, of which products make NaN; what is cut off is encoded again.
        x = tl.minimum(tl.maximum(x, -65504.0), 65504.0).to(tl.float16)
        y = tl.minimum(tl.maximum(y, -65504.0), 65504.0).to(tl.float16)
    k = tl.arange(0, NP)[None, :]
    tl.store(out + k, x, mask=inside)
    tl.store(out + NP + k, y, mask=inside)


@triton.jit
def prepare_kernel(
    rows,  # i32 [rows, 2]: batch and token
    left,  # [rows, 2 width], f16 with NARROW, else f32
    factors,  # f32 [4, width]: of first and second channels, then their means
    pairs,  # i32 [width], column of the rotation of each pair, -1 for none
    rotations,  # f32 [tokens, angles, 2], from `first` on
    places,  # i64 [columns, 8 + 2 NP], as product_kernel takes them
    found,  # i32 [3]: the first set where an element is not finite, the third where one is too
    #         large for f16
    scale,  # f32, a power of two, of all elements
    count,
    width,
    angles,
    BM: tl.constexpr,
    NP: tl.constexpr,
    DTYPE: tl.constexpr,
    NARROW: tl.constexpr,
    ALIGNED: tl.constexpr,  # as product_kernel takes it
):
    """Removes rotation and means, and scales, a tile of rows and pairs in each program."""
    place = places + tl.program_id(1).to(tl.int64) * (8 + 2 * NP)
    if DTYPE == "F32":
        source = tl.load(place + 1).to(tl.pointer_type(tl.int32))
    else:
        source = tl.load(place + 1).to(tl.pointer_type(tl.int16))
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    inside = i < count
    batch = tl.load(rows + 2 * i, mask=inside, other=0).to(tl.int64)
    token = tl.load(rows + 2 * i + 1, mask=inside, other=0).to(tl.int64)
    row = batch * tl.load(place + 2) + token * tl.load(place + 3)
    place_a = tl.load(place + 8 + tl.arange(0, NP))[None, :]
    place_b = tl.load(place + 8 + NP + tl.arange(0, NP))[None, :]
    live_a = inside[:, None]
    live_b = live_a
    if ALIGNED:
        source = tl.multiple_of(source, 16)
        row = tl.multiple_of(row, 8)
        place_a = tl.max_contiguous(tl.multiple_of(place_a, [1, 8]), [1, 8])
        place_b = tl.max_contiguous(tl.multiple_of(place_b, [1, 8]), [1, 8])
    else:
        live_a = live_a & (place_a >= 0)
        live_b = live_b & (place_b >= 0)
    a = _read(source, row[:, None] + place_a, live_a, DTYPE)
    b = _read(source, row[:, None] + place_b, live_b, DTYPE)
    p = tl.load(place) * NP + tl.arange(0, NP)
    pair = tl.load(pairs + p)[None, :]
    turned = inside[:, None] & (pair >= 0)
    at = rotations + 2 * (token[:, None] * angles + pair)
    cosine = tl.load(at, mask=turned, other=1.0)
    sine = tl.load(at + 1, mask=turned, other=0.0)
    x = a * cosine + b * sine
    y = b * cosine - a * sine
    x = (x - tl.load(factors + 2 * width + p)[None, :]) * tl.load(factors + p)[None, :]
    y = (y - tl.load(factors + 3 * width + p)[None, :]) * tl.load(factors + width + p)[None, :]
    out = left + i.to(tl.int64)[:, None] * (2 * width) + 2 * NP * tl.load(place)
    _store_left(out, x, y, scale, inside[:, None], found, NP, NARROW)


@triton.jit(do_not_specialize=["columns"])
def project_kernel(
    left,  # of prepare_kernel
    encode,  # f16 [components, 2 width], zeros for pairs of no channels
    rows,
    offsets,  # i8 [tokens]
    inverses,  # f32 [tokens], 1 over the scaled step of each token
    classes,  # i32 [components], with the shift
    thresholds,  # f32 [29, 64], below which the lesser of two quanta is taken
    block_of,  # i32 [rows], number of the block of each row
    quanta,  # i32 [rows, components]
    lasts,  # i32 [blocks], zeros before: behind the last component that is not 0
    found,  # i32 [3], the second set where a quantum is beyond 2^20
    count,
    components,
    inner,  # 2 width, a multiple of BK
    columns,  # tiles of components
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    NARROW: tl.constexpr,
):
    """Projects and quantizes a tile of rows and components in each program."""
    row_tile, column = tile_of(columns)
    i = row_tile.to(tl.int32) * BM + tl.arange(0, BM)
    j = column.to(tl.int32) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    row = left + tl.minimum(i, count - 1).to(tl.int64)[:, None] * inner + k[None, :]
    vector = encode + tl.minimum(j, components - 1).to(tl.int64)[:, None] * inner + k[None, :]
    sums = tl.zeros([BM, BN], tl.float32)
    for step in range(0, inner, BK):
        basis = tl.load(vector + step)
        if not NARROW:
            basis = basis.to(tl.float32)
        sums = tl.dot(tl.load(row + step), tl.trans(basis), sums, input_precision="tf32")
    inside = i < count
    live = inside[:, None] & (j < components)[None, :]
    token = tl.load(rows + 2 * i + 1, mask=inside, other=0)
    v = sums * tl.load(inverses + token)[:, None]
    size = tl.abs(v)
    # Not what compares as less, so that it has NaN too.
    far = live & ((size <= 1048576.0) == 0)
    if tl.max(far.to(tl.int32)) != 0:
        tl.store(found + 1, 1)
    size = tl.where(live & (far == 0), size, 0.0)
    quantum = (size + 0.5).to(tl.int32)
    own = tl.load(classes + j, mask=j < components, other=0)
    e = own[None, :] + tl.load(offsets + token).to(tl.int32)[:, None]
    e = tl.minimum(tl.maximum(e, 0), 28)
    least = tl.load(thresholds + e * 64 + tl.minimum(quantum, 63))
    quantum -= ((quantum > 0) & (size < least)).to(tl.int32)
    quantum = tl.where(v < 0, -quantum, quantum)
    tl.store(quanta + i.to(tl.int64)[:, None] * components + j[None, :], quantum, mask=live)
    last = tl.max(tl.where(quantum != 0, (j + 1)[None, :], 0), 1)
    block = tl.load(block_of + i, mask=inside, other=0)
    tl.atomic_max(lasts + block, last, mask=inside & (last > 0))
