// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Products and reflections of matrices of 16-bit integers, for the target being
// compiled.

#include <hwy/highway.h>

#include <cstring>

#include "kernels/kernels.h"

#if defined(KVCOMPRESS_KERNELS_HIGHWAY_MULTIPLY_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef KVCOMPRESS_KERNELS_HIGHWAY_MULTIPLY_INL_H_
#undef KVCOMPRESS_KERNELS_HIGHWAY_MULTIPLY_INL_H_
#else
#define KVCOMPRESS_KERNELS_HIGHWAY_MULTIPLY_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace kvcompress::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// kRows rows of the product from `row` on, kVectors vectors of columns from
// `column` on: their sums stay in registers.
template <size_t kRows, size_t kVectors>
HWY_INLINE void MultiplyTile(const int16_t* left, const int16_t* right,
                             ProductShape shape, size_t row, size_t column,
                             int32_t* product) {
  const hn::ScalableTag<int32_t> d32;
  const hn::Repartition<int16_t, decltype(d32)> d16;
  const size_t lanes = hn::Lanes(d32);
  using Sum = decltype(hn::Zero(d32));
  Sum sums[kRows][kVectors];
  Sum more[kRows][kVectors];  // of targets that sum pairs in two steps
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t v = 0; v < kVectors; ++v) {
      sums[r][v] = more[r][v] = hn::Zero(d32);
    }
  }
  const int16_t* pairs = right + 2 * column;
  for (size_t k = 0; k < shape.inner; k += 2) {
    decltype(hn::Zero(d16)) b[kVectors];
    for (size_t v = 0; v < kVectors; ++v) {
      b[v] = hn::LoadU(d16, pairs + 2 * v * lanes);
    }
    pairs += 2 * shape.columns;
    for (size_t r = 0; r < kRows; ++r) {
      int32_t pair;
      std::memcpy(&pair, left + (row + r) * shape.inner + k, sizeof(pair));
      const auto a = hn::BitCast(d16, hn::Set(d32, pair));
      for (size_t v = 0; v < kVectors; ++v) {
        sums[r][v] =
            hn::ReorderWidenMulAccumulate(d32, a, b[v], sums[r][v], more[r][v]);
      }
    }
  }
  for (size_t r = 0; r < kRows; ++r) {
    int32_t* const out = product + (row + r) * shape.columns + column;
    for (size_t v = 0; v < kVectors; ++v) {
      hn::StoreU(hn::RearrangeToOddPlusEven(sums[r][v], more[r][v]), d32,
                 out + v * lanes);
    }
  }
}

inline void MultiplyMatrices(const int16_t* left, const int16_t* right,
                             ProductShape shape, int32_t* product) {
  constexpr size_t kRows = 4;
  constexpr size_t kVectors = 2;
  const size_t lanes = hn::Lanes(hn::ScalableTag<int32_t>());
  const size_t whole = shape.columns - shape.columns % lanes;
  const size_t tiled = whole - whole % (kVectors * lanes);
  size_t row = 0;
  for (; row + kRows <= shape.rows; row += kRows) {
    for (size_t column = 0; column < tiled; column += kVectors * lanes) {
      MultiplyTile<kRows, kVectors>(left, right, shape, row, column, product);
    }
    if (tiled < whole) {
      MultiplyTile<kRows, 1>(left, right, shape, row, tiled, product);
    }
  }
  for (; row < shape.rows; ++row) {
    for (size_t column = 0; column < whole; column += lanes) {
      MultiplyTile<1, 1>(left, right, shape, row, column, product);
    }
  }
  if (whole < shape.columns) {
    MultiplyColumns(left, right, shape, whole, product);
  }
}

// kVectors vectors of columns from `column` on.
template <size_t kVectors>
HWY_INLINE void ReflectTile(const int16_t* unit, size_t rows, size_t columns,
                            size_t column, int16_t* matrix) {
  const hn::ScalableTag<int32_t> d32;
  const hn::Repartition<int16_t, decltype(d32)> d16;
  const size_t lanes = hn::Lanes(d32);
  int32_t products[kMaxReflected];
  MultiplyTile<1, kVectors>(unit, matrix,
                            {.rows = 1, .inner = rows, .columns = columns}, 0,
                            column, products);
  decltype(hn::Zero(d16)) w[kVectors];
  for (size_t v = 0; v < kVectors; ++v) {
    const auto shifted = hn::ShiftRight<14>(hn::Add(
        hn::LoadU(d32, products + column + v * lanes), hn::Set(d32, 8192)));
    const auto bounded =
        hn::Max(hn::Min(shifted, hn::Set(d32, 32767)), hn::Set(d32, -32768));
    // Each twice, for the two rows of a pair.
    const auto low = hn::And(bounded, hn::Set(d32, 0xffff));
    w[v] = hn::BitCast(d16, hn::Or(low, hn::ShiftLeft<16>(bounded)));
  }
  int16_t* pairs = matrix + 2 * column;
  for (size_t k = 0; k < rows; k += 2, pairs += 2 * columns) {
    int32_t pair;
    std::memcpy(&pair, unit + k, sizeof(pair));
    const auto u = hn::BitCast(d16, hn::Set(d32, pair));
    for (size_t v = 0; v < kVectors; ++v) {
      int16_t* const at = pairs + 2 * v * lanes;
      hn::StoreU(
          hn::SaturatedSub(hn::LoadU(d16, at), hn::MulFixedPoint15(u, w[v])),
          d16, at);
    }
  }
}

inline void ReflectMatrix(const int16_t* unit, size_t rows, size_t columns,
                          int16_t* matrix) {
  constexpr size_t kVectors = 2;
  const size_t lanes = hn::Lanes(hn::ScalableTag<int32_t>());
  const size_t whole = columns - columns % lanes;
  const size_t tiled = whole - whole % (kVectors * lanes);
  for (size_t j = 0; j < tiled; j += kVectors * lanes) {
    ReflectTile<kVectors>(unit, rows, columns, j, matrix);
  }
  if (tiled < whole) ReflectTile<1>(unit, rows, columns, tiled, matrix);
  if (whole < columns) ReflectColumns(unit, rows, columns, whole, matrix);
}

}  // namespace kvcompress::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
