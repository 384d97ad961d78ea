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

// The values of half a strip, of token `t`.
KVCOMPRESS_VNNI inline void Finish(__m512i sums, float unit,
                                   const StripFinish& finish, size_t t,
                                   size_t column, float* values) {
  if (finish.more != nullptr) {
    const int32_t* const more = finish.more + t * finish.more_stride;
    sums = _mm512_add_epi32(sums, _mm512_loadu_si512(more + column));
  }
  const __m512 scale = _mm512_mul_ps(_mm512_set1_ps(unit),
                                     _mm512_loadu_ps(finish.scales + column));
  // With a mask that takes all: without one GCC 12 warns of the uninitialized
  // operand in its own header.
  const __m512 whole = _mm512_maskz_cvtepi32_ps(0xffff, sums);
  _mm512_storeu_ps(values + column,
                   _mm512_add_ps(_mm512_mul_ps(whole, scale),
                                 _mm512_loadu_ps(finish.means + column)));
}

KVCOMPRESS_VNNI void Restore(const int16_t* strip, const SparseToken* tokens,
                             size_t count, const StripFinish& finish,
                             size_t stride, float* values) {
  constexpr size_t kPairs = kRowsAtOnce / 2;
  const __m512i first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
  const __m512i second = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
  for (size_t t = 0; t < count; ++t, values += stride) {
    const SparseToken& token = tokens[t];
    // Of the lower and the upper halves of blocks of 128 bits; several, since a
    // sum waits for the one before it.
    __m512i lower[kPairs];
    __m512i upper[kPairs];
    for (size_t p = 0; p < kPairs; ++p) {
      lower[p] = upper[p] = _mm512_setzero_si512();
    }
    for (size_t k = 0; k < token.count; k += kRowsAtOnce) {
      for (size_t p = 0; p < kPairs; ++p) {
        const uint16_t* const rows = token.rows + k + 2 * p;
        const __m512i a = _mm512_load_si512(strip + rows[0] * kStripColumns);
        const __m512i b = _mm512_load_si512(strip + rows[1] * kStripColumns);
        const __m512i factors = PairAt(token.factors + k + 2 * p);
        lower[p] =
            _mm512_dpwssd_epi32(lower[p], _mm512_unpacklo_epi16(a, b), factors);
        upper[p] =
            _mm512_dpwssd_epi32(upper[p], _mm512_unpackhi_epi16(a, b), factors);
      }
    }
    for (size_t p = 1; p < kPairs; ++p) {
      lower[0] = _mm512_add_epi32(lower[0], lower[p]);
      upper[0] = _mm512_add_epi32(upper[0], upper[p]);
    }
    Finish(_mm512_permutex2var_epi64(lower[0], first, upper[0]), token.unit,
           finish, t, 0, values);
    Finish(_mm512_permutex2var_epi64(lower[0], second, upper[0]), token.unit,
           finish, t, kStripColumns / 2, values);
  }
}

#undef KVCOMPRESS_VNNI

}  // namespace

MultiplyInt16 Vnni() {
  return __builtin_cpu_supports("avx512vnni") ? Multiply : nullptr;
}
RestoreStrip VnniStrip() {
  return __builtin_cpu_supports("avx512vnni") ? Restore : nullptr;
}

}  // namespace kvcompress::kernels

#else

namespace kvcompress::kernels {

MultiplyInt16 Vnni() { return nullptr; }
RestoreStrip VnniStrip() { return nullptr; }

}  // namespace kvcompress::kernels

#endif
