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

// kRows rows of the product and kVectors vectors of its columns: as many sums
// as hide how long one takes.
template <size_t kRows, size_t kVectors>
KVCOMPRESS_VNNI inline void MultiplyTile(const int16_t* rows,
                                         const int16_t* pairs,
                                         ProductShape shape, int32_t* product) {
  __m512i sums[kRows][kVectors];
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t v = 0; v < kVectors; ++v) sums[r][v] = _mm512_setzero_si512();
  }
  for (size_t k = 0; k < shape.inner; k += 2) {
    __m512i right[kVectors];
    for (size_t v = 0; v < kVectors; ++v) {
      right[v] = _mm512_loadu_si512(pairs + 2 * v * kLanes);
    }
    for (size_t r = 0; r < kRows; ++r) {
      const __m512i left = PairAt(rows + r * shape.inner + k);
      for (size_t v = 0; v < kVectors; ++v) {
        sums[r][v] = _mm512_dpwssd_epi32(sums[r][v], left, right[v]);
      }
    }
    pairs += 2 * shape.columns;
  }
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t v = 0; v < kVectors; ++v) {
      _mm512_storeu_si512(product + r * shape.columns + v * kLanes, sums[r][v]);
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
      MultiplyTile<kRows, kVectors>(left + row * shape.inner, pairs, shape,
                                    product + row * shape.columns + column);
    }
    for (; row < shape.rows; ++row) {
      MultiplyTile<1, kVectors>(left + row * shape.inner, pairs, shape,
                                product + row * shape.columns + column);
    }
  }
  if (whole < shape.columns) {
    MultiplyColumns(left, right, shape, whole, product);
  }
}

#undef KVCOMPRESS_VNNI

}  // namespace

MultiplyInt16 Vnni() {
  return __builtin_cpu_supports("avx512vnni") ? Multiply : nullptr;
}

}  // namespace kvcompress::kernels

#else

namespace kvcompress::kernels {

MultiplyInt16 Vnni() { return nullptr; }

}  // namespace kvcompress::kernels

#endif
