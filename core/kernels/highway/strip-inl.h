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

// Of token `t`, at columns from `column` on.
HWY_INLINE void StoreFinished(StripSum sums, float unit,
                              const StripFinish& finish, size_t t,
                              size_t column, float* values) {
  const hn::RebindToFloat<StripSums> d;
  if (finish.more != nullptr) {
    const int32_t* const more = finish.more + t * finish.more_stride;
    sums = hn::Add(sums, hn::LoadU(StripSums(), more + column));
  }
  const auto scale =
      hn::Mul(hn::Set(d, unit), hn::LoadU(d, finish.scales + column));
  hn::StoreU(hn::Add(hn::Mul(hn::ConvertTo(d, sums), scale),
                     hn::LoadU(d, finish.means + column)),
             d, values + column);
}

inline void RestoreTokensOfStrip(const int16_t* strip,
                                 const SparseToken* tokens, size_t count,
                                 const StripFinish& finish, size_t stride,
                                 float* values) {
  const StripShorts d16;
  const StripSums d32;
  constexpr size_t kLanes16 = hn::MaxLanes(d16);
  constexpr size_t kVectors = kStripColumns / kLanes16;
  for (size_t t = 0; t < count; ++t, values += stride) {
    const SparseToken& token = tokens[t];
    // Of the lower and the upper halves of blocks, in two steps each on targets
    // that sum pairs so.
    StripSum lower[kVectors], more_lower[kVectors];
    StripSum upper[kVectors], more_upper[kVectors];
    for (size_t v = 0; v < kVectors; ++v) {
      lower[v] = more_lower[v] = upper[v] = more_upper[v] = hn::Zero(d32);
    }
    for (size_t k = 0; k < token.count; k += 2) {
      int32_t pair;
      std::memcpy(&pair, token.factors + k, sizeof(pair));
      const auto factors = hn::BitCast(d16, hn::Set(d32, pair));
      const int16_t* const one = strip + token.rows[k] * kStripColumns;
      const int16_t* const other = strip + token.rows[k + 1] * kStripColumns;
      for (size_t v = 0; v < kVectors; ++v) {
        const auto a = hn::Load(d16, one + v * kLanes16);
        const auto b = hn::Load(d16, other + v * kLanes16);
        lower[v] =
            hn::ReorderWidenMulAccumulate(d32, hn::InterleaveLower(d16, a, b),
                                          factors, lower[v], more_lower[v]);
        upper[v] =
            hn::ReorderWidenMulAccumulate(d32, hn::InterleaveUpper(d16, a, b),
                                          factors, upper[v], more_upper[v]);
      }
    }
    for (size_t v = 0; v < kVectors; ++v) {
      StripSum first, second;
      OrderColumns(hn::RearrangeToOddPlusEven(lower[v], more_lower[v]),
                   hn::RearrangeToOddPlusEven(upper[v], more_upper[v]), &first,
                   &second);
      const size_t column = v * kLanes16;
      StoreFinished(first, token.unit, finish, t, column, values);
      StoreFinished(second, token.unit, finish, t, column + kLanes16 / 2,
                    values);
    }
  }
}

}  // namespace kvcompress::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
