// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Quantizes, packs and measures groups in one pass, for the target being
// compiled.

#include "kernels/highway/rotation-inl.h"
#include "kernels/highway/scales-inl.h"
#include "kernels/highway/sums-inl.h"

#if defined(KVCOMPRESS_KERNELS_HIGHWAY_ENCODE_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef KVCOMPRESS_KERNELS_HIGHWAY_ENCODE_INL_H_
#undef KVCOMPRESS_KERNELS_HIGHWAY_ENCODE_INL_H_
#else
#define KVCOMPRESS_KERNELS_HIGHWAY_ENCODE_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace kvcompress::kernels::HWY_NAMESPACE {

// Adding it rounds a small float to an integer, to nearest even, which is then
// in the lowest bits in two's complement.
inline constexpr float kRounder = 12582912.0f;  // 1.5 * 2^23

struct Codes4 {
  static constexpr float kDivisor = 7, kLeast = -8, kMost = 7;
  static constexpr size_t Size(size_t m) { return m / 2; }
  // Writes the codes of two vectors that are half a group apart.
  static HWY_INLINE void Store(Word low, Word high, size_t, uint8_t* codes) {
    const Words d;
    const Word pair =
        hn::Or(hn::And(low, hn::Set(d, 15)), hn::ShiftLeft<4>(high));
    hn::StoreU(hn::TruncateTo(Bytes(), pair), Bytes(), codes);
  }
};

struct Codes8 {
  static constexpr float kDivisor = 127, kLeast = -128, kMost = 127;
  static constexpr size_t Size(size_t m) { return m; }
  static HWY_INLINE void Store(Word low, Word high, size_t half,
                               uint8_t* codes) {
    hn::StoreU(hn::TruncateTo(Bytes(), low), Bytes(), codes);
    hn::StoreU(hn::TruncateTo(Bytes(), high), Bytes(), codes + half);
  }
};

// Rounds quotients to codes, as floats, with kRounder still added.
struct Nearest {
  // Right where no error reaches Scales::bound.
  static HWY_INLINE Float Round(Float x, Float, Float inverse) {
    return hn::Add(hn::Mul(x, inverse), hn::Set(Floats(), kRounder));
  }
};
template <typename Codes>
struct AsSpecified {
  static HWY_INLINE Float Round(Float x, Float scale, Float) {
    const Floats d;
    const Float quotient = hn::Div(x, scale);
    // The largest float below 1/2: the sum with any smaller magnitude than 1/2
    // stays below 1.
    const Float half = hn::CopySign(hn::Set(d, 0.49999997f), quotient);
    const Float code = hn::Trunc(hn::Add(quotient, half));
    return hn::Add(hn::Max(hn::Min(code, hn::Set(d, Codes::kMost)),
                           hn::Set(d, Codes::kLeast)),
                   hn::Set(d, kRounder));
  }
};

// Encodes a group at `source` and adds up its distortion; writes the decoded
// elements unless `decoded` is null. False, with nothing added, when an error
// reaches `bound`.
template <class T, typename Codes, typename Rounding>
HWY_INLINE bool MeasuredGroup(const uint8_t* source, size_t group, float scale,
                              float inverse, float bound, uint8_t* codes,
                              uint8_t* decoded, LaneSums* sums,
                              Float* max_abs_e) {
  constexpr size_t kSize = sizeof(typename T::Bits);
  const Floats d;
  const Float scales = hn::Set(d, scale);
  const Float inverses = hn::Set(d, inverse);
  const Float rounder = hn::Set(d, kRounder);
  const size_t half = group / 2;
  GroupSums group_sums = GroupSums::Zero();
  Float codes2[kSumLanes / kLanes];  // squares of codes
  for (Float& squares : codes2) squares = hn::Zero(d);
  Float most_rounding = hn::Zero(d);
  Float most = *max_abs_e;

  const auto one = [&](size_t element, auto part) HWY_ATTR {
    const Float x = T::Load(source + element * kSize);
    const Float rounded = Rounding::Round(x, scales, inverses);
    const Float code = hn::Sub(rounded, rounder);
    const Float exact = hn::Mul(code, scales);
    Float y = exact;
    Float error = hn::Abs(hn::Sub(exact, x));
    most_rounding = hn::Max(most_rounding, error);
    if constexpr (T::kRounds) {
      y = T::Round(exact);
      error = hn::Abs(hn::Sub(y, x));
      most = hn::Max(most, error);
      group_sums.AddSquares(part, y);
    } else {
      codes2[part] = hn::MulAdd(code, code, codes2[part]);
    }
    group_sums.AddErrors(part, x, error);
    if (decoded != nullptr) T::Store(y, decoded + element * kSize);
    return hn::BitCast(Words(), rounded);
  };
  for (size_t row = 0; row < half; row += kSumLanes) {
    ForEachPart(row, [&](size_t j, auto part) HWY_ATTR {
      const Word low = one(j, part);
      const Word high = one(j + half, part);
      Codes::Store(low, high, half, codes + j);
    });
  }
  if (!hn::AllTrue(d, hn::Lt(most_rounding, hn::Set(d, bound)))) return false;
  if constexpr (!T::kRounds) {
    // Squares of y, exactly: those of codes times that of the scale.
    most = hn::Max(most, most_rounding);
    const Double squared = hn::Set(Doubles(), double{scale} * scale);
    ForEachPart(0, [&](size_t, auto part) HWY_ATTR {
      Unroll<kWide>([&](auto i) HWY_ATTR {
        group_sums.y2.part[kWide * part + i] =
            hn::Mul(Widen(codes2[part], i), squared);
      });
    });
  }
  *max_abs_e = most;
  group_sums.AddTo(sums);
  return true;
}

// Encodes a group of floats and writes what the codes stand for to `restored`.
// False when an error reaches `bound`.
template <typename Codes, typename Rounding>
HWY_INLINE bool RotatedGroup(const float* values, size_t group, float scale,
                             float inverse, float bound, uint8_t* codes,
                             float* restored) {
  const Floats d;
  const Float scales = hn::Set(d, scale);
  const Float inverses = hn::Set(d, inverse);
  const size_t half = group / 2;
  Float most = hn::Zero(d);
  const auto round = [&](size_t element) HWY_ATTR {
    const Float x = hn::LoadU(d, values + element);
    const Float rounded = Rounding::Round(x, scales, inverses);
    const Float y = hn::Mul(hn::Sub(rounded, hn::Set(d, kRounder)), scales);
    most = hn::Max(most, hn::Abs(hn::Sub(y, x)));
    hn::StoreU(y, d, restored + element);
    return rounded;
  };
  for (size_t j = 0; j < half; j += kLanes) {
    Codes::Store(hn::BitCast(Words(), round(j)),
                 hn::BitCast(Words(), round(j + half)), half, codes + j);
  }
  return hn::AllTrue(d, hn::Lt(most, hn::Set(d, bound)));
}

// Rounds `values` to the type and measures them against a group at `source`.
template <class T>
HWY_INLINE void MeasureGroup(const uint8_t* source, const float* values,
                             size_t group, uint8_t* decoded, LaneSums* sums,
                             Double* max_abs_e, Float* max_abs_x) {
  constexpr size_t kSize = sizeof(typename T::Bits);
  const Floats d;
  const size_t half = group / 2;
  GroupSums group_sums = GroupSums::Zero();
  Double most = *max_abs_e;
  Float largest = *max_abs_x;
  const auto one = [&](size_t element, auto part) HWY_ATTR {
    const Float x = T::Load(source + element * kSize);
    const Float y = T::Round(hn::LoadU(d, values + element));
    if (decoded != nullptr) T::Store(y, decoded + element * kSize);
    largest = hn::Max(largest, hn::Abs(x));
    group_sums.AddValues(part, x, y, &most);
  };
  for (size_t row = 0; row < half; row += kSumLanes) {
    ForEachPart(row, [&](size_t j, auto part) HWY_ATTR {
      one(j, part);
      one(j + half, part);
    });
  }
  *max_abs_e = most;
  *max_abs_x = largest;
  group_sums.AddTo(sums);
}

// False when the portable kernel must decide.
template <class T, typename Codes>
bool EncodePlain(const uint8_t* source, const BlockLayout& layout,
                 uint8_t* payload, uint8_t* decoded, LaneSums* sums) {
  constexpr size_t kSize = sizeof(typename T::Bits);
  const size_t group = layout.group;
  const size_t groups = layout.count / group;
  const uint8_t* const source_begin = source;
  uint8_t* codes = payload + ScalesSize(layout.count, group);
  Float max_abs_e = hn::Zero(Floats());
  // Scales are found one turn ahead, while the groups before them are encoded:
  // they wait for divisions.
  const auto find = [&](size_t first, Scales* scales) HWY_ATTR {
    return FindScales<T>(source_begin + first * group * kSize,
                         HWY_MIN(kScalesAtOnce, groups - first), group,
                         Codes::kDivisor, payload + 2 * first, scales);
  };
  Scales both[2];
  if (!find(0, &both[0])) return false;
  for (size_t first = 0; first < groups; first += kScalesAtOnce) {
    const Scales& scales = both[first / kScalesAtOnce % 2];
    const size_t next = first + kScalesAtOnce;
    if (next < groups && !find(next, &both[next / kScalesAtOnce % 2])) {
      return false;
    }
    const size_t count = HWY_MIN(kScalesAtOnce, groups - first);
    sums->max_abs_x = HWY_MAX(sums->max_abs_x, double{scales.max_abs_x});
    for (size_t i = 0; i < count; ++i) {
      PrefetchAhead<Access::kRead>(source, group * kSize);
      if (!MeasuredGroup<T, Codes, Nearest>(source, group, scales.scale[i],
                                            scales.inverse[i], scales.bound[i],
                                            codes, decoded, sums, &max_abs_e)) {
        MeasuredGroup<T, Codes, AsSpecified<Codes>>(
            source, group, scales.scale[i], 0, HUGE_VALF, codes, decoded, sums,
            &max_abs_e);
      }
      source += group * kSize;
      codes += Codes::Size(group);
      if (decoded != nullptr) decoded += group * kSize;
    }
  }
  sums->max_abs_e = hn::GetLane(hn::MaxOfLanes(Floats(), max_abs_e));
  return true;
}

// Elements that are rotated at once: whole groups and whole rotations.
inline constexpr size_t kRotatedElements = 512;

// Rotates and encodes up to kRotatedElements.
template <class T, typename Codes>
HWY_INLINE bool EncodeRotatedPart(const uint8_t* source, BlockLayout layout,
                                  uint8_t* scales_out, uint8_t* codes,
                                  uint8_t* decoded, LaneSums* sums,
                                  Double* max_abs_e, Float* max_abs_x) {
  constexpr size_t kSize = sizeof(typename T::Bits);
  HWY_ALIGN float values[kRotatedElements];
  HWY_ALIGN float restored[kRotatedElements];
  const Floats d;
  const size_t group = layout.group;
  PrefetchAhead<Access::kRead>(source, layout.count * kSize);
  Float faults = hn::Zero(d);  // NaN once something is not finite
  for (size_t i = 0; i < layout.count; i += kLanes) {
    const Float x = T::Load(source + i * kSize);
    hn::Store(x, d, values + i);
    faults = hn::Or(faults, hn::Sub(x, x));
  }
  if (!hn::AllTrue(d, hn::Eq(faults, hn::Zero(d)))) return false;
  Rotate(layout.rotation, layout.count, values);
  const size_t groups = layout.count / group;
  for (size_t first = 0; first < groups; first += kScalesAtOnce) {
    Scales scales;
    const size_t count = HWY_MIN(kScalesAtOnce, groups - first);
    if (!FindScales<F32>(
            reinterpret_cast<const uint8_t*>(values + first * group), count,
            group, Codes::kDivisor, scales_out + 2 * first, &scales)) {
      return false;
    }
    for (size_t i = 0; i < count; ++i) {
      const size_t at = (first + i) * group;
      if (!RotatedGroup<Codes, Nearest>(values + at, group, scales.scale[i],
                                        scales.inverse[i], scales.bound[i],
                                        codes, restored + at)) {
        RotatedGroup<Codes, AsSpecified<Codes>>(values + at, group,
                                                scales.scale[i], 0, HUGE_VALF,
                                                codes, restored + at);
      }
      codes += Codes::Size(group);
    }
  }
  RotateBack(layout.rotation, layout.count, restored);
  for (size_t i = 0; i < layout.count; i += group) {
    MeasureGroup<T>(source + i * kSize, restored + i, group,
                    decoded == nullptr ? nullptr : decoded + i * kSize, sums,
                    max_abs_e, max_abs_x);
  }
  return true;
}

template <class T, typename Codes>
bool EncodeRotated(const uint8_t* source, const BlockLayout& layout,
                   uint8_t* payload, uint8_t* decoded, LaneSums* sums) {
  constexpr size_t kSize = sizeof(typename T::Bits);
  uint8_t* const codes = payload + ScalesSize(layout.count, layout.group);
  Double max_abs_e = hn::Zero(Doubles());
  Float max_abs_x = hn::Zero(Floats());
  for (size_t i = 0; i < layout.count; i += kRotatedElements) {
    BlockLayout part = layout;
    part.count = HWY_MIN(kRotatedElements, layout.count - i);
    if (!EncodeRotatedPart<T, Codes>(
            source + i * kSize, part, payload + 2 * (i / layout.group),
            codes + Codes::Size(i),
            decoded == nullptr ? nullptr : decoded + i * kSize, sums,
            &max_abs_e, &max_abs_x)) {
      return false;
    }
  }
  sums->max_abs_e = hn::GetLane(hn::MaxOfLanes(Doubles(), max_abs_e));
  sums->max_abs_x = hn::GetLane(hn::MaxOfLanes(Floats(), max_abs_x));
  return true;
}

}  // namespace kvcompress::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
