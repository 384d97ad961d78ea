// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Sums of kernels/lane_sums.h in vectors, for the target being compiled.

#include <type_traits>

#include "kernels/highway/vectors-inl.h"
#include "kernels/lane_sums.h"

#if defined(KVCOMPRESS_KERNELS_HIGHWAY_SUMS_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef KVCOMPRESS_KERNELS_HIGHWAY_SUMS_INL_H_
#undef KVCOMPRESS_KERNELS_HIGHWAY_SUMS_INL_H_
#else
#define KVCOMPRESS_KERNELS_HIGHWAY_SUMS_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace kvcompress::kernels::HWY_NAMESPACE {

// A vector of floats fills Doubles twice: half 0 and half 1.
template <int kHalf>
HWY_INLINE Double Widen(Float value) {
  const hn::Half<Floats> half;
  if constexpr (kHalf == 0) {
    return hn::PromoteTo(Doubles(), hn::LowerHalf(half, value));
  } else {
    return hn::PromoteTo(Doubles(), hn::UpperHalf(half, value));
  }
}

// kSumLanes lanes of a sum.
struct LaneSum {
  static constexpr size_t kRegisters = kSumLanes / (kLanes / 2);
  Double part[kRegisters];

  // Instead of a constructor, which would not be compiled for the target.
  static HWY_INLINE LaneSum Zero() {
    const Double zero = hn::Zero(Doubles());
#if HWY_MAX_BYTES == 16
    return {{zero, zero, zero, zero}};
#else
    return {{zero, zero}};
#endif
  }
  // Adds this group's lanes to the block's.
  HWY_INLINE void AddTo(double* lanes) const {
    const Doubles d;
    for (size_t i = 0; i < kRegisters; ++i) {
      double* const at = lanes + i * (kLanes / 2);
      hn::Store(hn::Add(hn::Load(d, at), part[i]), d, at);
    }
  }
};

// Which vector of a row of kSumLanes elements: 0, or 1 where it takes two.
template <int kIndex>
using Part = std::integral_constant<int, kIndex>;

// Calls `visit(byte, Part)` for each vector of a row.
template <typename Visit>
HWY_INLINE void ForEachPart(size_t row, Visit visit) {
  visit(row, Part<0>());
  if constexpr (kLanes < kSumLanes) visit(row + kLanes, Part<1>());
}

// The sums of one group. Fused multiply-adds only of floats that were widened:
// their products are exact, so that fused or not is the same.
struct GroupSums {
  LaneSum x2, y2, e2, abs_e;

  static HWY_INLINE GroupSums Zero() {
    return {LaneSum::Zero(), LaneSum::Zero(), LaneSum::Zero(), LaneSum::Zero()};
  }

  // kWidened: `abs` was a float.
  template <int kHalf, bool kWidened, int kPart>
  HWY_INLINE void AddErrorHalf(Part<kPart>, Float x, Double abs) {
    constexpr int r = 2 * kPart + kHalf;
    const Double wide_x = Widen<kHalf>(x);
    x2.part[r] = hn::MulAdd(wide_x, wide_x, x2.part[r]);
    e2.part[r] = kWidened ? hn::MulAdd(abs, abs, e2.part[r])
                          : hn::Add(e2.part[r], hn::Mul(abs, abs));
    abs_e.part[r] = hn::Add(abs_e.part[r], abs);
  }
  // `abs` are the magnitudes of errors that are exact in binary32.
  template <int kPart>
  HWY_INLINE void AddErrors(Part<kPart> part, Float x, Float abs) {
    AddErrorHalf<0, true>(part, x, Widen<0>(abs));
    AddErrorHalf<1, true>(part, x, Widen<1>(abs));
  }
  template <int kPart>
  HWY_INLINE void AddSquares(Part<kPart>, Float y) {
    const Double low = Widen<0>(y);
    const Double high = Widen<1>(y);
    y2.part[2 * kPart] = hn::MulAdd(low, low, y2.part[2 * kPart]);
    y2.part[2 * kPart + 1] = hn::MulAdd(high, high, y2.part[2 * kPart + 1]);
  }

  HWY_INLINE void AddTo(LaneSums* sums) const {
    x2.AddTo(sums->x2);
    y2.AddTo(sums->y2);
    e2.AddTo(sums->e2);
    abs_e.AddTo(sums->abs_e);
  }
};

}  // namespace kvcompress::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
