// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Tokens that are made of some rows of a strip, for the target being compiled.

#include <hwy/highway.h>

#include <cstring>

#include "kernels/joint.h"

#if defined(KVCOMPRESS_KERNELS_HIGHWAY_STRIP_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef KVCOMPRESS_KERNELS_HIGHWAY_STRIP_INL_H_
#undef KVCOMPRESS_KERNELS_HIGHWAY_STRIP_INL_H_
#else
#define KVCOMPRESS_KERNELS_HIGHWAY_STRIP_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace kvcompress::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using StripShorts = hn::CappedTag<int16_t, kStripColumns>;
using StripSums = hn::RepartitionToWide<StripShorts>;
using StripSum = hn::Vec<StripSums>;

// Sums of a vector of columns, those of the lower and of the upper halves of
// its blocks of 128 bits, in the order of the columns.
HWY_INLINE void OrderColumns(StripSum lower, StripSum upper, StripSum* first,
                             StripSum* second) {
#if HWY_TARGET == HWY_AVX3
  const __m512i of_first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
  const __m512i of_second = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
  *first = StripSum{_mm512_permutex2var_epi64(lower.raw, of_first, upper.raw)};
  *second =
      StripSum{_mm512_permutex2var_epi64(lower.raw, of_second, upper.raw)};
#elif HWY_TARGET == HWY_AVX2
  *first = hn::ConcatLowerLower(StripSums(), upper, lower);
  *second = hn::ConcatUpperUpper(StripSums(), upper, lower);
#else
  *first = lower;
  *second = upper;
#endif
}

HWY_INLINE void StoreFinished(StripSum sums, float unit,
                              const StripFinish& finish, size_t column,
                              float* values) {
  const hn::RebindToFloat<StripSums> d;
  const auto scale =
      hn::Mul(hn::Set(d, unit), hn::LoadU(d, finish.scales + column));
  hn::StoreU(hn::Add(hn::Mul(hn::ConvertTo(d, sums), scale),
                     hn::LoadU(d, finish.means + column)),
             d, values + column);
}

inline constexpr size_t kStripLanes = hn::MaxLanes(StripShorts());
inline constexpr size_t kStripVectors = kStripColumns / kStripLanes;

// Sums of columns: of the lower and of the upper halves of blocks, in two steps
// each on targets that sum pairs so.
struct ColumnSums {
  StripSum lower[kStripVectors], more_lower[kStripVectors];
  StripSum upper[kStripVectors], more_upper[kStripVectors];
};

// Adds rows a and b times their factors.
HWY_INLINE void AddPair(hn::Vec<StripShorts> a, hn::Vec<StripShorts> b,
                        hn::Vec<StripShorts> factors, size_t v,
                        ColumnSums* sums) {
  const StripShorts d16;
  const StripSums d32;
  sums->lower[v] = hn::ReorderWidenMulAccumulate(
      d32, hn::InterleaveLower(d16, a, b), factors, sums->lower[v],
      sums->more_lower[v]);
  sums->upper[v] = hn::ReorderWidenMulAccumulate(
      d32, hn::InterleaveUpper(d16, a, b), factors, sums->upper[v],
      sums->more_upper[v]);
}

HWY_INLINE hn::Vec<StripShorts> PairOfFactors(const int16_t* factors) {
  int32_t pair;
  std::memcpy(&pair, factors, sizeof(pair));
  return hn::BitCast(StripShorts(), hn::Set(StripSums(), pair));
}

// Adds up rows whose sums fit 16 bits, a multiple of kAddedRows: one addition a
// row, where a product takes three steps.
HWY_INLINE void SumRows(const int16_t* strip, const uint16_t* rows,
                        size_t count, hn::Vec<StripShorts>* sums) {
  const StripShorts d16;
  for (size_t v = 0; v < kStripVectors; ++v) sums[v] = hn::Zero(d16);
  for (size_t k = 0; k < count; k += kAddedRows) {
    for (size_t i = 0; i < kAddedRows; ++i) {
      const int16_t* const row = strip + rows[k + i] * kStripColumns;
      for (size_t v = 0; v < kStripVectors; ++v) {
        sums[v] = hn::Add(sums[v], hn::Load(d16, row + v * kStripLanes));
      }
    }
  }
}

// Adds the rows whose factors are 1 and -1.
HWY_INLINE void AddUnitRows(const Strip& strip, const SparseToken& token,
                            size_t together, ColumnSums* sums) {
  constexpr int16_t kSigns[] = {1, -1};
  const auto signs = PairOfFactors(kSigns);
  size_t plus = token.plus;
  size_t minus = token.minus;
  const uint16_t* minus_rows = token.rows + token.count - minus;
  const uint16_t* plus_rows = minus_rows - plus;
  while (plus + minus > 0) {
    const size_t some = HWY_MIN(plus, together);
    const size_t others = HWY_MIN(minus, together);
    hn::Vec<StripShorts> positive[kStripVectors];
    hn::Vec<StripShorts> negative[kStripVectors];
    SumRows(strip.rows, plus_rows, some, positive);
    SumRows(strip.rows, minus_rows, others, negative);
    for (size_t v = 0; v < kStripVectors; ++v) {
      AddPair(positive[v], negative[v], signs, v, sums);
    }
    plus_rows += some;
    plus -= some;
    minus_rows += others;
    minus -= others;
  }
}

inline void RestoreTokensOfStrip(const Strip& strip, const SparseToken* tokens,
                                 size_t count, const StripFinish& finish,
                                 size_t stride, float* values) {
  const StripShorts d16;
  const StripSums d32;
  const size_t together = strip.together - strip.together % kAddedRows;
  for (size_t t = 0; t < count; ++t, values += stride) {
    const SparseToken& token = tokens[t];
    ColumnSums sums;
    for (size_t v = 0; v < kStripVectors; ++v) {
      sums.lower[v] = sums.more_lower[v] = hn::Zero(d32);
      sums.upper[v] = sums.more_upper[v] = hn::Zero(d32);
    }
    const size_t multiplied =
        together == 0 ? token.count : token.count - token.plus - token.minus;
    for (size_t k = 0; k < multiplied; k += 2) {
      const auto factors = PairOfFactors(token.factors + k);
      const int16_t* const one = strip.rows + token.rows[k] * kStripColumns;
      const int16_t* const other =
          strip.rows + token.rows[k + 1] * kStripColumns;
      for (size_t v = 0; v < kStripVectors; ++v) {
        AddPair(hn::Load(d16, one + v * kStripLanes),
                hn::Load(d16, other + v * kStripLanes), factors, v, &sums);
      }
    }
    if (together > 0) AddUnitRows(strip, token, together, &sums);
    for (size_t v = 0; v < kStripVectors; ++v) {
      StripSum first, second;
      OrderColumns(
          hn::RearrangeToOddPlusEven(sums.lower[v], sums.more_lower[v]),
          hn::RearrangeToOddPlusEven(sums.upper[v], sums.more_upper[v]), &first,
          &second);
      const size_t column = v * kStripLanes;
      StoreFinished(first, token.unit, finish, column, values);
      StoreFinished(second, token.unit, finish, column + kStripLanes / 2,
                    values);
    }
  }
}

}  // namespace kvcompress::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
