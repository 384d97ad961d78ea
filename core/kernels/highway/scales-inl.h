// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Scales of groups, four at a time, for the target being compiled.

#include "kernels/highway/vectors-inl.h"
#include "kernels/kernels.h"

#if defined(KVCOMPRESS_KERNELS_HIGHWAY_SCALES_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef KVCOMPRESS_KERNELS_HIGHWAY_SCALES_INL_H_
#undef KVCOMPRESS_KERNELS_HIGHWAY_SCALES_INL_H_
#else
#define KVCOMPRESS_KERNELS_HIGHWAY_SCALES_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace kvcompress::kernels::HWY_NAMESPACE {

using FourFloats = hn::FixedTag<float, 4>;
using FourWords = hn::FixedTag<uint32_t, 4>;

inline constexpr size_t kScalesAtOnce = 4;

struct Scales {
  alignas(16) float scale[kScalesAtOnce];
  alignas(16) float inverse[kScalesAtOnce];  // about; 0 for the scale 0
  // While every error is below it, rounding x * inverse to an integer gives
  // what the format asks for, a division rounded half away from zero. Never
  // where the scale is subnormal, so that codes may have to be clamped.
  alignas(16) float bound[kScalesAtOnce];
  float max_abs_x;
};

// The largest magnitudes, as bits, in each lane of a group.
template <class T>
HWY_INLINE Word LargestBits(const uint8_t* group, size_t elements) {
  using Bits = typename T::Bits;
  const hn::Repartition<Bits, Words> d;
  constexpr size_t kAtOnce = kLanes * sizeof(uint32_t) / sizeof(Bits);
  const auto mask = hn::Set(d, T::kMagnitude);
  const auto load = [&](size_t i) KVCOMPRESS_INLINE {
    return hn::And(hn::LoadU(d, reinterpret_cast<const Bits*>(group) + i),
                   mask);
  };
  auto even = load(0);
  auto odd = load(kAtOnce);
  for (size_t i = 2 * kAtOnce; i < elements; i += 2 * kAtOnce) {
    even = hn::Max(even, load(i));
    odd = hn::Max(odd, load(i + kAtOnce));
  }
  const Word largest = hn::BitCast(Words(), hn::Max(even, odd));
  if constexpr (sizeof(Bits) == 4) {
    return largest;
  } else {
    return hn::Max(hn::And(largest, hn::Set(Words(), 0xffff)),
                   hn::ShiftRight<16>(largest));
  }
}

// The largest lane of each of four vectors.
HWY_INLINE hn::Vec<FourWords> LargestLanes(Word a, Word b, Word c, Word e) {
  const Words d;
  const hn::Repartition<uint64_t, Words> pairs;
  const auto fold = [&](Word first, Word second) KVCOMPRESS_INLINE {
    return hn::BitCast(pairs, hn::Max(hn::InterleaveLower(d, first, second),
                                      hn::InterleaveUpper(d, first, second)));
  };
  const auto ab = fold(a, b);
  const auto ce = fold(c, e);
  const Word all = hn::Max(hn::BitCast(d, hn::InterleaveLower(pairs, ab, ce)),
                           hn::BitCast(d, hn::InterleaveUpper(pairs, ab, ce)));
#if HWY_MAX_BYTES == 16
  return all;
#else
  return hn::Max(hn::LowerHalf(FourWords(), all),
                 hn::UpperHalf(FourWords(), all));
#endif
}

// Finds the scales of `count` groups, 1 to kScalesAtOnce, and writes their bits
// to `payload`. False for what is not finite, or whose scale is not.
template <class T>
HWY_INLINE bool FindScales(const uint8_t* groups, size_t count, size_t group,
                           float divisor, uint8_t* payload, Scales* scales) {
  const FourFloats d;
  const FourWords du;
  Word largest[kScalesAtOnce];
  for (size_t i = 0; i < kScalesAtOnce; ++i) {
    largest[i] = i < count
                     ? LargestBits<T>(
                           groups + i * group * sizeof(typename T::Bits), group)
                     : hn::Zero(Words());
  }
  const auto bits =
      LargestLanes(largest[0], largest[1], largest[2], largest[3]);
  const auto values = T::Value(du, bits);
  const auto quotients = hn::Div(values, hn::Set(d, divisor));
  const auto finite =
      hn::And(hn::RebindMask(d, hn::Lt(bits, hn::Set(du, T::kInfinity))),
              hn::Lt(quotients, hn::Set(d, 65520.0f)));
  if (!hn::AllTrue(d, finite)) return false;
  const auto scale = F16::RoundMagnitude(d, quotients);
  alignas(16) uint32_t scale_bits[kScalesAtOnce];
  hn::Store(F16::MagnitudeBits(d, scale), du, scale_bits);
  for (size_t i = 0; i < count; ++i) {
    const uint16_t half = static_cast<uint16_t>(scale_bits[i]);
    std::memcpy(payload + 2 * i, &half, sizeof(half));
  }
  const auto zero = hn::Zero(d);
  const auto is_zero = hn::Eq(scale, zero);
  hn::Store(scale, d, scales->scale);
  hn::Store(hn::IfThenZeroElse(is_zero, hn::Div(hn::Set(d, 1.0f), scale)), d,
            scales->inverse);
  const auto is_subnormal = hn::Lt(scale, hn::Set(d, 0x1p-14f));
  const auto bound =
      hn::IfThenElse(is_subnormal, zero, hn::Mul(scale, hn::Set(d, 0.5f)));
  hn::Store(hn::IfThenElse(is_zero, hn::Set(d, HUGE_VALF), bound), d,
            scales->bound);
  scales->max_abs_x = hn::GetLane(hn::MaxOfLanes(d, values));
  return true;
}

}  // namespace kvcompress::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
