// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The rotation of int4-hadamard, for the target being compiled. Every step adds
// the same two numbers as the portable one does.

#include <cmath>
#include <cstdint>

#include "kernels/highway/vectors-inl.h"
#include "kernels/kernels.h"

#if defined(KVCOMPRESS_KERNELS_HIGHWAY_ROTATION_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef KVCOMPRESS_KERNELS_HIGHWAY_ROTATION_INL_H_
#undef KVCOMPRESS_KERNELS_HIGHWAY_ROTATION_INL_H_
#else
#define KVCOMPRESS_KERNELS_HIGHWAY_ROTATION_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace kvcompress::kernels::HWY_NAMESPACE {

// Where position i of a rotation is negated: bit 63 of (i + 1) times 2^64 over
// the golden ratio, as the sign of a zero.
struct RotationSigns {
  alignas(64) float sign[kMaxRotation];
};
inline constexpr RotationSigns kRotationSigns = [] {
  RotationSigns signs = {};
  for (uint64_t i = 0; i < kMaxRotation; ++i) {
    signs.sign[i] = (i + 1) * 0x9e3779b97f4a7c15u >> 63 != 0 ? -0.0f : 0.0f;
  }
  return signs;
}();

// 1, or -1 in the lanes whose number has the bit: a product with it is exact.
HWY_INLINE Float NegateWhere(int bit) {
  const Words d;
  const Word top = hn::ShiftLeftSame(hn::Iota(d, 0), 31 - bit);
  return hn::CopySign(hn::Set(Floats(), 1.0f), hn::BitCast(Floats(), top));
}

// The steps between lanes: v[j] + v[j + h] at j, v[j] - v[j + h] at j + h.
HWY_INLINE Float StepsWithin(size_t width, Float v) {
  v = hn::MulAdd(v, NegateWhere(0), hn::Shuffle2301(v));
  if (width > 2) v = hn::MulAdd(v, NegateWhere(1), hn::Shuffle1032(v));
#if HWY_MAX_BYTES > 16
  if (width > 4) {
    v = hn::MulAdd(v, NegateWhere(2), hn::ConcatLowerUpper(Floats(), v, v));
  }
#endif
  return v;
}

// A step between two of kVectors vectors, kStep apart.
template <size_t kStep, size_t kPair>
HWY_INLINE void StepBetween(Float* v) {
  constexpr size_t kFirst = kPair / kStep * 2 * kStep + kPair % kStep;
  const Float sum = hn::Add(v[kFirst], v[kFirst + kStep]);
  v[kFirst + kStep] = hn::Sub(v[kFirst], v[kFirst + kStep]);
  v[kFirst] = sum;
}

// All steps between kVectors vectors, unrolled so that they are registers.
template <size_t kVectors, size_t kStep = 1>
HWY_INLINE void StepsBetween(Float* v) {
  if constexpr (kStep < kVectors) {
    Unroll<kVectors / 2>([&](auto pair)
                             HWY_ATTR { StepBetween<kStep, pair>(v); });
    StepsBetween<kVectors, 2 * kStep>(v);
  }
}

// Rotates runs of kVectors * kLanes values, or of `width` where that is fewer.
// Signs are flipped before where kBack is false, else after.
template <size_t kVectors, bool kBack>
HWY_INLINE void RotateRuns(size_t width, size_t count, const float* signs,
                           float* values) {
  const Floats d;
  const Float norm =
      hn::Set(d, static_cast<float>(1 / std::sqrt(static_cast<double>(width))));
  const size_t within = kVectors == 1 ? width : kLanes;
  for (float* run = values; run < values + count; run += kVectors * kLanes) {
    Float v[kVectors];
    Unroll<kVectors>([&](auto i) HWY_ATTR {
      v[i] = hn::Load(d, run + i * kLanes);
      if constexpr (!kBack) {
        v[i] = hn::Xor(v[i], hn::Load(d, signs + i * kLanes));
      }
      v[i] = StepsWithin(within, v[i]);
    });
    StepsBetween<kVectors>(v);
    Unroll<kVectors>([&](auto i) HWY_ATTR {
      v[i] = hn::Mul(v[i], norm);
      if constexpr (kBack) {
        v[i] = hn::Xor(v[i], hn::Load(d, signs + i * kLanes));
      }
      hn::Store(v[i], d, run + i * kLanes);
    });
  }
}

template <bool kBack>
HWY_INLINE void RotateEither(size_t width, size_t count, float* values) {
  const float* const signs = kRotationSigns.sign;
  switch (width) {
    case kLanes:
      return RotateRuns<1, kBack>(width, count, signs, values);
    case 2 * kLanes:
      return RotateRuns<2, kBack>(width, count, signs, values);
    case 4 * kLanes:
      return RotateRuns<4, kBack>(width, count, signs, values);
    case 8 * kLanes:
      return RotateRuns<8, kBack>(width, count, signs, values);
    case 16 * kLanes:
      return RotateRuns<16, kBack>(width, count, signs, values);
    case 32 * kLanes:
      return RotateRuns<32, kBack>(width, count, signs, values);
    case 64 * kLanes:
      return RotateRuns<64, kBack>(width, count, signs, values);
    default:
      break;
  }
  if (width == 1) return;
  HWY_ALIGN float repeated[kLanes];
  for (size_t i = 0; i < kLanes; ++i) repeated[i] = signs[i % width];
  RotateRuns<1, kBack>(width, count, repeated, values);
}

// REQUIRES for both: `count` is a multiple of 8, `values` is aligned.
HWY_NOINLINE void Rotate(size_t width, size_t count, float* values) {
  RotateEither<false>(width, count, values);
}
HWY_NOINLINE void RotateBack(size_t width, size_t count, float* values) {
  RotateEither<true>(width, count, values);
}

}  // namespace kvcompress::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
