// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "kernels/vnni.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include <immintrin.h>

#include <cstring>

namespace kvcompress::kernels {
namespace {

#define KVCOMPRESS_VNNI __attribute__((target("avx512f,avx512bw,avx512vnni")))

constexpr size_t kLanes = 16;

// Two 16-bit integers in every lane.
KVCOMPRESS_VNNI inline __m512i PairAt(const int16_t* pair) {
  int32_t bits;
  std::memcpy(&bits, pair, sizeof(bits));
  return _mm512_set1_epi32(bits);
}

// Adds up the products of kRows rows of pairs, `row_stride` integers apart with
// `pair_stride` from a pair to the next, and kVectors vectors of columns, whose
// pairs of rows are `columns` columns apart. As many sums as hide how long one
// takes.
template <size_t kRows, size_t kVectors, bool kAdd>
KVCOMPRESS_VNNI inline void MultiplyTile(const int16_t* rows, size_t row_stride,
                                         size_t pair_stride,
                                         const int16_t* pairs, size_t count,
                                         size_t columns, int32_t* product) {
  __m512i sums[kRows][kVectors];
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t v = 0; v < kVectors; ++v) {
      sums[r][v] = kAdd ? _mm512_loadu_si512(product + r * columns + v * kLanes)
                        : _mm512_setzero_si512();
    }
  }
  for (size_t k = 0; k < count; ++k) {
    __m512i right[kVectors];
    for (size_t v = 0; v < kVectors; ++v) {
      right[v] = _mm512_loadu_si512(pairs + 2 * v * kLanes);
    }
    for (size_t r = 0; r < kRows; ++r) {
      const __m512i left = PairAt(rows + r * row_stride);
      for (size_t v = 0; v < kVectors; ++v) {
        sums[r][v] = _mm512_dpwssd_epi32(sums[r][v], left, right[v]);
      }
    }
    rows += pair_stride;
    pairs += 2 * columns;
  }
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t v = 0; v < kVectors; ++v) {
      _mm512_storeu_si512(product + r * columns + v * kLanes, sums[r][v]);
    }
  }
}

constexpr size_t kVectors = 2;
constexpr size_t kTile = kVectors * kLanes;

// Columns outside, so that theirs stay in the nearest cache.
KVCOMPRESS_VNNI void Multiply(const int16_t* left, const int16_t* right,
                              ProductShape shape, int32_t* product) {
  constexpr size_t kRows = 8;
  const size_t whole = shape.columns - shape.columns % kTile;
  for (size_t column = 0; column < whole; column += kTile) {
    const int16_t* const pairs = right + 2 * column;
    size_t row = 0;
    for (; row + kRows <= shape.rows; row += kRows) {
      MultiplyTile<kRows, kVectors, false>(
          left + row * shape.inner, shape.inner, 2, pairs, shape.inner / 2,
          shape.columns, product + row * shape.columns + column);
    }
    for (; row < shape.rows; ++row) {
      MultiplyTile<1, kVectors, false>(left + row * shape.inner, shape.inner, 2,
                                       pairs, shape.inner / 2, shape.columns,
                                       product + row * shape.columns + column);
    }
  }
  if (whole < shape.columns) {
    MultiplyColumns(left, right, shape, whole, product);
  }
}

KVCOMPRESS_VNNI void MultiplyOwnColumns(const int16_t* matrix, size_t pairs,
                                        size_t columns, int32_t* products) {
  constexpr size_t kRows = 8;
  if (columns % kTile != 0) {
    PortableJoint().multiply_columns_of(matrix, pairs, columns, products);
    return;
  }
  for (size_t column = 0; column < columns; column += kTile) {
    // Tiles that end before the diagonal are left out.
    for (size_t row = 0; row < column + kTile; row += kRows) {
      MultiplyTile<kRows, kVectors, true>(matrix + 2 * row, 2, 2 * columns,
                                          matrix + 2 * column, pairs, columns,
                                          products + row * columns + column);
    }
  }
}

#undef KVCOMPRESS_VNNI

}  // namespace

const VnniKernels* Vnni() {
  static constexpr VnniKernels kKernels = {
      .multiply = Multiply, .multiply_columns_of = MultiplyOwnColumns};
  return __builtin_cpu_supports("avx512vnni") ? &kKernels : nullptr;
}

}  // namespace kvcompress::kernels

#else

namespace kvcompress::kernels {

const VnniKernels* Vnni() { return nullptr; }

}  // namespace kvcompress::kernels

#endif
