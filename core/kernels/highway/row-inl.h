// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The distortion of a token, for the target being compiled.

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

// The sums of a row whose `count` is a multiple of kLeastAtOnce, by lane.
template <class T>
HWY_INLINE void SumRow(const uint8_t* source, const uint8_t* decoded,
                       size_t count, ChannelSums channels, RowLanes* lanes) {
  constexpr size_t kSize = sizeof(typename T::Bits);
  const WideFloats d;
  const Doubles dd;
  HWY_ALIGN float x[kMostAtOnce];
  HWY_ALIGN float y[kMostAtOnce];
  LaneSum x2 = LaneSum::Zero();
  LaneSum e2 = LaneSum::Zero();
  for (size_t first = 0; first < count; first += kMostAtOnce) {
    const size_t part = HWY_MIN(kMostAtOnce, count - first);
    for (size_t i = 0; i < part; i += kWideLanes) {
      const size_t at = (first + i) * kSize;
      const WideFloat value = T::template Load<WideFloats>(source + at);
      const WideFloat result = T::template Load<WideFloats>(decoded + at);
      const auto finite = hn::Lt(hn::Abs(value), hn::Set(d, HUGE_VALF));
      hn::Store(hn::IfThenElseZero(finite, value), d, x + i);
      hn::Store(hn::IfThenElseZero(finite, result), d, y + i);
    }
    ForEachInRow(part, [&](size_t i, auto r) KVCOMPRESS_INLINE {
      const Double wide_x = LoadWide(x + i);
      const Double error = hn::Sub(LoadWide(y + i), wide_x);
      x2.part[r] = hn::MulAdd(wide_x, wide_x, x2.part[r]);
      e2.part[r] = hn::Add(e2.part[r], hn::Mul(error, error));
      double* const sum = channels.x + first + i;
      double* const sum2 = channels.x2 + first + i;
      hn::StoreU(hn::Add(hn::LoadU(dd, sum), wide_x), dd, sum);
      hn::StoreU(hn::MulAdd(wide_x, wide_x, hn::LoadU(dd, sum2)), dd, sum2);
    });
  }
  x2.AddTo(lanes->x2);
  e2.AddTo(lanes->e2);
}

}  // namespace kvcompress::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
