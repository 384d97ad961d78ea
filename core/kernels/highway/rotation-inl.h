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
HWY_INLINE WideFloat NegateWhere(int bit) {
  const WideWords d;
  const WideWord top = hn::ShiftLeftSame(hn::Iota(d, 0), 31 - bit);
  return hn::CopySign(hn::Set(WideFloats(), 1.0f),
                      hn::BitCast(WideFloats(), top));
}

// The steps between lanes: v[j] + v[j + h] at j, v[j] - v[j + h] at j + h.
HWY_INLINE WideFloat StepsWithin(size_t width, WideFloat v) {
  v = hn::MulAdd(v, NegateWhere(0), hn::Shuffle2301(v));
  if (width > 2) v = hn::MulAdd(v, NegateWhere(1), hn::Shuffle1032(v));
#if HWY_MAX_BYTES > 16
  if (width > 4) {
    v = hn::MulAdd(v, NegateWhere(2), hn::SwapAdjacentBlocks(v));
  }
#endif
#if HWY_MAX_BYTES > 32
  if (width > 8) {
    v = hn::MulAdd(v, NegateWhere(3), hn::ConcatLowerUpper(WideFloats(), v, v));
  }
#endif
  return v;
}

// A step between two of kVectors vectors, kStep apart.
template <size_t kStep, size_t kPair>
HWY_INLINE void StepBetween(WideFloat* v) {
  constexpr size_t kFirst = kPair / kStep * 2 * kStep + kPair % kStep;
  const WideFloat sum = hn::Add(v[kFirst], v[kFirst + kStep]);
  v[kFirst + kStep] = hn::Sub(v[kFirst], v[kFirst + kStep]);
  v[kFirst] = sum;
}

// All steps between kVectors vectors, unrolled so that they are registers.
template <size_t kVectors, size_t kStep = 1>
HWY_INLINE void StepsBetween(WideFloat* v) {
  if constexpr (kStep < kVectors) {
    Unroll<kVectors / 2>(
        [&](auto pair) KVCOMPRESS_INLINE { StepBetween<kStep, pair>(v); });
    StepsBetween<kVectors, 2 * kStep>(v);
  }
}

// The steps of kVectors vectors at `run`, in registers; signs are flipped
// before unless `signs` is null.
template <size_t kVectors>
HWY_INLINE void Steps(size_t within, const float* signs, float* run,
                      WideFloat* v) {
  const WideFloats d;
  Unroll<kVectors>([&](auto i) KVCOMPRESS_INLINE {
    v[i] = hn::Load(d, run + i * kWideLanes);
    if (signs != nullptr) {
      v[i] = hn::Xor(v[i], hn::Load(d, signs + i * kWideLanes));
    }
    v[i] = StepsWithin(within, v[i]);
  });
  StepsBetween<kVectors>(v);
}

// Rotates runs of kVectors vectors, or of `width` values where that is fewer.
// Signs are flipped before where kBack is false, else after.
template <size_t kVectors, bool kBack>
HWY_INLINE void RotateRuns(size_t width, size_t count, const float* signs,
                           float* values) {
  const WideFloats d;
  const WideFloat norm =
      hn::Set(d, static_cast<float>(1 / std::sqrt(static_cast<double>(width))));
  const size_t within = kVectors == 1 ? width : kWideLanes;
  for (float* run = values; run < values + count;
       run += kVectors * kWideLanes) {
    WideFloat v[kVectors];
    Steps<kVectors>(within, kBack ? nullptr : signs, run, v);
    Unroll<kVectors>([&](auto i) KVCOMPRESS_INLINE {
      v[i] = hn::Mul(v[i], norm);
      if constexpr (kBack) {
        v[i] = hn::Xor(v[i], hn::Load(d, signs + i * kWideLanes));
      }
      hn::Store(v[i], d, run + i * kWideLanes);
    });
  }
}

// Vectors that registers hold, or nearly.
inline constexpr size_t kMaxVectors = 16;

// The same of runs of more than kMaxVectors, the last steps in memory.
template <bool kBack>
HWY_INLINE void RotateLongRuns(size_t width, size_t count, const float* signs,
                               float* values) {
  constexpr size_t kPart = kMaxVectors * kWideLanes;
  const WideFloats d;
  const WideFloat norm =
      hn::Set(d, static_cast<float>(1 / std::sqrt(static_cast<double>(width))));
  for (float* run = values; run < values + count; run += width) {
    for (size_t i = 0; i < width; i += kPart) {
      WideFloat v[kMaxVectors];
      Steps<kMaxVectors>(kWideLanes, kBack ? nullptr : signs + i, run + i, v);
      for (size_t j = 0; j < kMaxVectors; ++j) {
        hn::Store(v[j], d, run + i + j * kWideLanes);
      }
    }
    for (size_t step = kPart; step < width; step *= 2) {
      // Each pair once: the other of one without the bit `step` has it.
      for (size_t i = 0; i < width; i += kWideLanes) {
        if ((i & step) != 0) continue;
        const WideFloat a = hn::Load(d, run + i);
        const WideFloat b = hn::Load(d, run + i + step);
        hn::Store(hn::Add(a, b), d, run + i);
        hn::Store(hn::Sub(a, b), d, run + i + step);
      }
    }
    for (size_t i = 0; i < width; i += kWideLanes) {
      WideFloat value = hn::Mul(hn::Load(d, run + i), norm);
      if constexpr (kBack) value = hn::Xor(value, hn::Load(d, signs + i));
      hn::Store(value, d, run + i);
    }
  }
}

// Finds the number of vectors that make up `width`.
template <bool kBack, size_t kVectors = 1>
HWY_INLINE void RotateWidth(size_t width, size_t count, float* values) {
  const float* const signs = kRotationSigns.sign;
  if (width == kVectors * kWideLanes) {
    RotateRuns<kVectors, kBack>(width, count, signs, values);
  } else if constexpr (kVectors < kMaxVectors) {
    RotateWidth<kBack, 2 * kVectors>(width, count, values);
  } else if constexpr (kVectors * kWideLanes < kMaxRotation) {
    RotateLongRuns<kBack>(width, count, signs, values);
  }
}

template <bool kBack>
HWY_INLINE void RotateEither(size_t width, size_t count, float* values) {
  if (width == 1) return;
  if (width >= kWideLanes) return RotateWidth<kBack>(width, count, values);
  HWY_ALIGN float repeated[kWideLanes];
  for (size_t i = 0; i < kWideLanes; ++i) {
    repeated[i] = kRotationSigns.sign[i % width];
  }
  RotateRuns<1, kBack>(width, count, repeated, values);
}

// REQUIRES for both: `count` is a multiple of 16, `values` is aligned.
HWY_NOINLINE void Rotate(size_t width, size_t count, float* values) {
  RotateEither<false>(width, count, values);
}
HWY_NOINLINE void RotateBack(size_t width, size_t count, float* values) {
  RotateEither<true>(width, count, values);
}

}  // namespace kvcompress::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
