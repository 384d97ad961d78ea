// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Sums of kernels/lane_sums.h in vectors, for the target being compiled.

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

// Vectors of doubles that a vector of floats fills: 1 or 2.
inline constexpr size_t kWide = kLanes / kDoubleLanes;

// The doubles of one of the kWide vectors.
template <class V, size_t kIndex>
HWY_INLINE Double Widen(V value, Index<kIndex>) {
  if constexpr (kWide == 1) {
    return hn::PromoteTo(Doubles(), value);
  } else {
    const hn::Half<hn::DFromV<V>> half;
    return hn::PromoteTo(Doubles(), kIndex == 0 ? hn::LowerHalf(half, value)
                                                : hn::UpperHalf(half, value));
  }
}

// kSumLanes lanes of a sum.
struct LaneSum {
  static constexpr size_t kRegisters = kSumLanes / kDoubleLanes;
  Double part[kRegisters];

  // Instead of a constructor, which would not be compiled for the target.
  static HWY_INLINE LaneSum Zero() {
    LaneSum sum;
    for (Double& part : sum.part) part = hn::Zero(Doubles());
    return sum;
  }
  static HWY_INLINE LaneSum From(const double* lanes) {
    LaneSum sum;
    for (size_t i = 0; i < kRegisters; ++i) {
      sum.part[i] = hn::Load(Doubles(), lanes + i * kDoubleLanes);
    }
    return sum;
  }
  HWY_INLINE void Store(double* lanes) const {
    for (size_t i = 0; i < kRegisters; ++i) {
      hn::Store(part[i], Doubles(), lanes + i * kDoubleLanes);
    }
  }
  // Adds this group's lanes to the block's.
  HWY_INLINE void AddTo(double* lanes) const {
    const Doubles d;
    for (size_t i = 0; i < kRegisters; ++i) {
      double* const at = lanes + i * kDoubleLanes;
      hn::Store(hn::Add(hn::Load(d, at), part[i]), d, at);
    }
  }
};

// Calls `visit(byte, Index)` for each vector of floats of a row of kSumLanes
// elements, of which there are one or two.
template <typename Visit>
HWY_INLINE void ForEachPart(size_t row, Visit visit) {
  Unroll<kSumLanes / kLanes>(
      [&](auto part) HWY_ATTR { visit(row + part * kLanes, part); });
}

// The sums of one group. Fused multiply-adds only of floats that were widened:
// their products are exact, so that fused or not is the same.
struct GroupSums {
  LaneSum x2, y2, e2, abs_e;

  static HWY_INLINE GroupSums Zero() {
    return {LaneSum::Zero(), LaneSum::Zero(), LaneSum::Zero(), LaneSum::Zero()};
  }

  // Goes on where `sums` are.
  static HWY_INLINE GroupSums From(const LaneSums& sums) {
    return {LaneSum::From(sums.x2), LaneSum::From(sums.y2),
            LaneSum::From(sums.e2), LaneSum::From(sums.abs_e)};
  }
  HWY_INLINE void Store(LaneSums* sums) const {
    x2.Store(sums->x2);
    y2.Store(sums->y2);
    e2.Store(sums->e2);
    abs_e.Store(sums->abs_e);
  }

  // `abs` are the magnitudes of errors that are exact in binary32, and `part`
  // is the vector's in a row.
  HWY_INLINE void AddErrors(size_t part, Float x, Float abs) {
    Unroll<kWide>([&](auto i) HWY_ATTR {
      const size_t r = kWide * part + i;
      const Double wide_x = Widen(x, i);
      const Double wide_abs = Widen(abs, i);
      x2.part[r] = hn::MulAdd(wide_x, wide_x, x2.part[r]);
      e2.part[r] = hn::MulAdd(wide_abs, wide_abs, e2.part[r]);
      abs_e.part[r] = hn::Add(abs_e.part[r], wide_abs);
    });
  }
  HWY_INLINE void AddSquares(size_t part, Float y) {
    Unroll<kWide>([&](auto i) HWY_ATTR {
      const size_t r = kWide * part + i;
      const Double wide = Widen(y, i);
      y2.part[r] = hn::MulAdd(wide, wide, y2.part[r]);
    });
  }
  // Adds values and what they were decoded to, whatever their errors are; the
  // largest of these goes to `*most`.
  HWY_INLINE void AddValues(size_t part, Float x, Float y, Double* most) {
    Unroll<kWide>([&](auto i) HWY_ATTR {
      const size_t r = kWide * part + i;
      const Double wide_x = Widen(x, i);
      const Double wide_y = Widen(y, i);
      const Double abs = hn::Abs(hn::Sub(wide_y, wide_x));
      *most = hn::Max(*most, abs);
      x2.part[r] = hn::MulAdd(wide_x, wide_x, x2.part[r]);
      y2.part[r] = hn::MulAdd(wide_y, wide_y, y2.part[r]);
      e2.part[r] = hn::Add(e2.part[r], hn::Mul(abs, abs));
      abs_e.part[r] = hn::Add(abs_e.part[r], abs);
    });
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
