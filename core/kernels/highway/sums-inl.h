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

// Floats as doubles; from memory, which spares a shuffle.
HWY_INLINE Double LoadWide(const float* values) {
  const hn::Rebind<float, Doubles> d;
  return hn::PromoteTo(Doubles(), hn::LoadU(d, values));
}

// Rows are widened to floats and then to doubles, up to so many elements at a
// time, and multiples of so many.
inline constexpr size_t kMaxAtOnce = 128;
inline constexpr size_t kLeastAtOnce = HWY_MAX(kSumLanes, kWideLanes);

// Calls `visit(element, Index)` for each vector of doubles of a row of a
// multiple of kSumLanes elements, with its register.
template <typename Visit>
HWY_INLINE void ForEachInRow(size_t count, Visit visit) {
  for (size_t row = 0; row < count; row += kSumLanes) {
    Unroll<LaneSum::kRegisters>(
        [&](auto r) KVCOMPRESS_INLINE { visit(row + r * kDoubleLanes, r); });
  }
}

// Calls `visit(element, Index)` for each vector of doubles of a group, with its
// register, in the order of kernels/lane_sums.h.
template <typename Visit>
HWY_INLINE void ForEachInGroup(size_t group, Visit visit) {
  const size_t half = group / 2;
  for (size_t row = 0; row < half; row += kSumLanes) {
    Unroll<LaneSum::kRegisters>([&](auto r) KVCOMPRESS_INLINE {
      visit(row + r * kDoubleLanes, r);
      visit(row + half + r * kDoubleLanes, r);
    });
  }
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

  // `abs` are the magnitudes of errors that are exact in binary32, and `r` is
  // the vector's register.
  HWY_INLINE void AddErrors(size_t r, Double x, Double abs) {
    x2.part[r] = hn::MulAdd(x, x, x2.part[r]);
    e2.part[r] = hn::MulAdd(abs, abs, e2.part[r]);
    abs_e.part[r] = hn::Add(abs_e.part[r], abs);
  }
  HWY_INLINE void AddSquares(size_t r, Double y) {
    y2.part[r] = hn::MulAdd(y, y, y2.part[r]);
  }
  // Adds values and what they were decoded to, whatever their errors are; the
  // largest of these goes to `*most`.
  HWY_INLINE void AddValues(size_t r, Double x, Double y, Double* most) {
    const Double abs = hn::Abs(hn::Sub(y, x));
    *most = hn::Max(*most, abs);
    x2.part[r] = hn::MulAdd(x, x, x2.part[r]);
    y2.part[r] = hn::MulAdd(y, y, y2.part[r]);
    e2.part[r] = hn::Add(e2.part[r], hn::Mul(abs, abs));
    abs_e.part[r] = hn::Add(abs_e.part[r], abs);
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
