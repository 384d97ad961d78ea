// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The distortion of tokens, for the target being compiled.

#include "kernels/highway/sums-inl.h"
#include "kernels/kernels.h"

#if defined(KVCOMPRESS_KERNELS_HIGHWAY_ROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVCOMPRESS_KERNELS_HIGHWAY_ROW_INL_H_
#undef KVCOMPRESS_KERNELS_HIGHWAY_ROW_INL_H_
#else
#define KVCOMPRESS_KERNELS_HIGHWAY_ROW_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace kvcompress::kernels::HWY_NAMESPACE {

// Rows that registers hold the sums of.
inline constexpr size_t kRowsAtOnce = kDoubleLanes / 2;

// The sums, by lane, of the first `whole` of `columns` elements of kRows rows:
// a multiple of kLeastAtOnce. kChannels: there are sums of channels.
template <class T, size_t kRows, bool kChannels>
HWY_INLINE void SumRows(const uint8_t* source, const uint8_t* decoded,
                        size_t columns, size_t whole, ChannelSums channels,
                        RowLanes* lanes) {
  constexpr size_t kSize = sizeof(typename T::Bits);
  const WideFloats d;
  const Doubles dd;
  HWY_ALIGN float x[kRows][kMaxAtOnce];
  HWY_ALIGN float y[kRows][kMaxAtOnce];
  LaneSum x2[kRows];
  LaneSum e2[kRows];
  LaneSum d2[kRows];
  for (size_t row = 0; row < kRows; ++row) {
    x2[row] = LaneSum::Zero();
    e2[row] = LaneSum::Zero();
    d2[row] = LaneSum::Zero();
  }
  for (size_t first = 0; first < whole; first += kMaxAtOnce) {
    const size_t part = HWY_MIN(kMaxAtOnce, whole - first);
    for (size_t row = 0; row < kRows; ++row) {
      const uint8_t* const from = source + (row * columns + first) * kSize;
      const uint8_t* const to = decoded + (row * columns + first) * kSize;
      for (size_t i = 0; i < part; i += kWideLanes) {
        const WideFloat value = T::template Load<WideFloats>(from + i * kSize);
        const WideFloat result = T::template Load<WideFloats>(to + i * kSize);
        const auto finite = hn::Lt(hn::Abs(value), hn::Set(d, HUGE_VALF));
        hn::Store(hn::IfThenElseZero(finite, value), d, x[row] + i);
        hn::Store(hn::IfThenElseZero(finite, result), d, y[row] + i);
      }
    }
    ForEachInRow(part, [&](size_t i, auto r) KVCOMPRESS_INLINE {
      Double origin, sum;
      if constexpr (kChannels) {
        origin = LoadWide(channels.origins + first + i);
        sum = hn::LoadU(dd, channels.d + first + i);
      }
      Unroll<kRows>([&](auto row) KVCOMPRESS_INLINE {
        const Double wide_x = LoadWide(x[row] + i);
        const Double error = hn::Sub(LoadWide(y[row] + i), wide_x);
        x2[row].part[r] = hn::MulAdd(wide_x, wide_x, x2[row].part[r]);
        e2[row].part[r] = hn::Add(e2[row].part[r], hn::Mul(error, error));
        if constexpr (kChannels) {
          const Double difference = hn::Sub(wide_x, origin);
          d2[row].part[r] =
              hn::Add(d2[row].part[r], hn::Mul(difference, difference));
          sum = hn::Add(sum, difference);
        }
      });
      if constexpr (kChannels) hn::StoreU(sum, dd, channels.d + first + i);
    });
  }
  for (size_t row = 0; row < kRows; ++row) {
    x2[row].Store(lanes[row].x2);
    e2[row].Store(lanes[row].e2);
    d2[row].Store(lanes[row].d2);
  }
}

}  // namespace kvcompress::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
