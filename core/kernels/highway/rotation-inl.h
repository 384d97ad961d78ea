// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The rotation of int4-hadamard, for the target being compiled. Every step adds
// the same two numbers as the portable one does.

#include <cmath>

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

// The steps between lanes: v[j] + v[j + h] at j, v[j] - v[j + h] at j + h.
HWY_INLINE Float StepsWithin(size_t width, Float v) {
  const Words d;
  const Word lane = hn::Iota(d, 0);
  // Negates where the bit of the lane's number is set.
  const auto negate = [&](Word sign) HWY_ATTR {
    const Word top = hn::And(sign, hn::Set(d, 0x80000000));
    return hn::BitCast(Floats(), hn::Xor(hn::BitCast(d, v), top));
  };
  v = hn::Add(hn::Shuffle2301(v), negate(hn::ShiftLeft<31>(lane)));
  if (width > 2) {
    v = hn::Add(hn::Shuffle1032(v), negate(hn::ShiftLeft<30>(lane)));
  }
#if HWY_MAX_BYTES > 16
  if (width > 4) {
    v = hn::Add(hn::ConcatLowerUpper(Floats(), v, v),
                negate(hn::ShiftLeft<29>(lane)));
  }
#endif
  return v;
}

// The steps between kVectors vectors, in registers.
template <size_t kVectors>
HWY_INLINE void StepsBetween(Float* v) {
  for (size_t step = 1; step < kVectors; step *= 2) {
    for (size_t i = 0; i < kVectors; i += 2 * step) {
      for (size_t j = i; j < i + step; ++j) {
        const Float sum = hn::Add(v[j], v[j + step]);
        v[j + step] = hn::Sub(v[j], v[j + step]);
        v[j] = sum;
      }
    }
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
  for (float* run = values; run < values + count; run += kVectors * kLanes) {
    Float v[kVectors];
    for (size_t i = 0; i < kVectors; ++i) {
      v[i] = hn::Load(d, run + i * kLanes);
      if constexpr (!kBack) {
        v[i] = hn::Xor(v[i], hn::Load(d, signs + i * kLanes));
      }
      v[i] = StepsWithin(width, v[i]);
    }
    StepsBetween<kVectors>(v);
    for (size_t i = 0; i < kVectors; ++i) {
      v[i] = hn::Mul(v[i], norm);
      if constexpr (kBack) {
        v[i] = hn::Xor(v[i], hn::Load(d, signs + i * kLanes));
      }
      hn::Store(v[i], d, run + i * kLanes);
    }
  }
}

// Where position i of a rotation is negated: bit 63 of (i + 1) times 2^64 over
// the golden ratio, as the sign of a zero.
template <bool kBack>
HWY_INLINE void RotateEither(size_t width, size_t count, float* values) {
  if (width == 1) return;
  HWY_ALIGN float signs[kMaxRotation];
  for (size_t i = 0; i < HWY_MAX(width, kLanes); ++i) {
    signs[i] = (i % width + 1) * 0x9e3779b97f4a7c15u >> 63 != 0 ? -0.0f : 0.0f;
  }
  switch (width / kLanes) {
    case 2:
      return RotateRuns<2, kBack>(width, count, signs, values);
    case 4:
      return RotateRuns<4, kBack>(width, count, signs, values);
    case 8:
      return RotateRuns<8, kBack>(width, count, signs, values);
    case 16:
      return RotateRuns<16, kBack>(width, count, signs, values);
    case 32:
      return RotateRuns<32, kBack>(width, count, signs, values);
    case 64:
      return RotateRuns<64, kBack>(width, count, signs, values);
    default:
      return RotateRuns<1, kBack>(width, count, signs, values);
  }
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
