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

// The sums of a row whose `count` is a multiple of kSumLanes, by lane.
template <class T>
HWY_INLINE void SumRow(const uint8_t* source, const uint8_t* decoded,
                       size_t count, ChannelSums channels, RowLanes* lanes) {
  constexpr size_t kSize = sizeof(typename T::Bits);
  const Floats d;
  const Doubles dd;
  LaneSum x2 = LaneSum::Zero();
  LaneSum e2 = LaneSum::Zero();
  for (size_t row = 0; row < count; row += kSumLanes) {
    ForEachPart(row, [&](size_t i, auto part) HWY_ATTR {
      const Float source_x = T::Load(source + i * kSize);
      const Float source_y = T::Load(decoded + i * kSize);
      const auto finite = hn::Lt(hn::Abs(source_x), hn::Set(d, HUGE_VALF));
      const Float x = hn::IfThenElseZero(finite, source_x);
      const Float y = hn::IfThenElseZero(finite, source_y);
      Unroll<kWide>([&](auto wide) HWY_ATTR {
        const size_t r = kWide * part + wide;
        const size_t at = i + wide * kDoubleLanes;
        const Double wide_x = Widen(x, wide);
        const Double error = hn::Sub(Widen(y, wide), wide_x);
        x2.part[r] = hn::MulAdd(wide_x, wide_x, x2.part[r]);
        e2.part[r] = hn::Add(e2.part[r], hn::Mul(error, error));
        double* const sum = channels.x + at;
        double* const sum2 = channels.x2 + at;
        hn::StoreU(hn::Add(hn::LoadU(dd, sum), wide_x), dd, sum);
        hn::StoreU(hn::MulAdd(wide_x, wide_x, hn::LoadU(dd, sum2)), dd, sum2);
      });
    });
  }
  x2.AddTo(lanes->x2);
  e2.AddTo(lanes->e2);
}

}  // namespace kvcompress::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
