// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Quantizes, packs and measures groups in one pass, for the target being
// compiled.

#include "kernels/highway/codes-inl.h"
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

inline constexpr size_t kMaxGroup = 128;
// The compiler knows the group of the presets.
inline constexpr size_t kUsualGroup = 64;

// Vectors that hold kSumLanes values, at least one.
inline constexpr size_t kParts = HWY_MAX(1, kSumLanes / kWideLanes);

// What a group leaves behind for its sums.
struct GroupValues {
  HWY_ALIGN float errors[kMaxGroup];  // magnitudes
  // Of types that round: the source and the decoded values.
  HWY_ALIGN float values[kMaxGroup];
  HWY_ALIGN float decoded[kMaxGroup];
  // Of types that do not: sums of the squares of codes.
  HWY_ALIGN float squares[kParts * kWideLanes];
};

// Encodes a group at `source`; writes the decoded elements unless `decoded` is
// null. False when an error reaches `bound`.
template <class T, typename Codes, typename Rounding>
HWY_INLINE bool EncodeGroup(const uint8_t* source, size_t group, float scale,
                            float inverse, float bound, uint8_t* codes,
                            uint8_t* decoded, GroupValues* left,
                            WideFloat* max_abs_e) {
  constexpr size_t kSize = sizeof(typename T::Bits);
  const WideFloats d;
  const WideFloat scales = hn::Set(d, scale);
  const WideFloat inverses = hn::Set(d, inverse);
  const WideFloat rounder = hn::Set(d, kRounder);
  const size_t half = group / 2;
  WideFloat squares[kParts];
  for (WideFloat& sum : squares) sum = hn::Zero(d);
  WideFloat most_rounding = hn::Zero(d);
  WideFloat most = *max_abs_e;

  const auto one = [&](size_t element, auto part) KVCOMPRESS_INLINE {
    const WideFloat x = T::template Load<WideFloats>(source + element * kSize);
    const WideFloat rounded = Rounding::Round(x, scales, inverses);
    const WideFloat code = hn::Sub(rounded, rounder);
    WideFloat y = hn::Mul(code, scales);  // exact
    WideFloat error = hn::Abs(hn::Sub(y, x));
    most_rounding = hn::Max(most_rounding, error);
    if constexpr (T::kRounds) {
      y = T::Round(y);
      error = hn::Abs(hn::Sub(y, x));
      most = hn::Max(most, error);
      hn::Store(x, d, left->values + element);
      hn::Store(y, d, left->decoded + element);
    } else {
      squares[part] = hn::MulAdd(code, code, squares[part]);
    }
    hn::Store(error, d, left->errors + element);
    if (decoded != nullptr) T::Store(y, decoded + element * kSize);
    return hn::BitCast(WideWords(), rounded);
  };
  for (size_t row = 0; row < half; row += kParts * kWideLanes) {
    Unroll<kParts>([&](auto part) KVCOMPRESS_INLINE {
      const size_t j = row + part * kWideLanes;
      const WideWord low = one(j, part);
      const WideWord high = one(j + half, part);
      Codes::Store(low, high, half, codes + j);
    });
  }
  if (!hn::AllTrue(d, hn::Lt(most_rounding, hn::Set(d, bound)))) return false;
  *max_abs_e = T::kRounds ? most : hn::Max(most, most_rounding);
  for (size_t i = 0; i < kParts; ++i) {
    hn::Store(squares[i], d, left->squares + i * kWideLanes);
  }
  return true;
}

// Adds up the distortion of kGroups groups: their sums do not wait for each
// other.
template <class T, size_t kGroups>
HWY_INLINE void MeasureGroups(const uint8_t* source, size_t group,
                              const float* scales, const GroupValues* left,
                              LaneSums* sums) {
  GroupSums groups[kGroups];
  const float* x[kGroups];
  Unroll<kGroups>([&](auto g) KVCOMPRESS_INLINE {
    groups[g] = GroupSums::Zero();
    if constexpr (T::kRounds) {
      x[g] = left[g].values;
    } else {
      x[g] = reinterpret_cast<const float*>(source) + g * group;
      // Squares of y, exactly: those of codes times that of the scale.
      const Double squared = hn::Set(Doubles(), double{scales[g]} * scales[g]);
      for (size_t i = 0; i < kParts * kWideLanes; i += kDoubleLanes) {
        Double& sum = groups[g].y2.part[i % kSumLanes / kDoubleLanes];
        sum = hn::MulAdd(LoadWide(left[g].squares + i), squared, sum);
      }
    }
  });
  ForEachInGroup(group, [&](size_t i, auto r) KVCOMPRESS_INLINE {
    Unroll<kGroups>([&](auto g) KVCOMPRESS_INLINE {
      groups[g].AddErrors(r, LoadWide(x[g] + i), LoadWide(left[g].errors + i));
      if constexpr (T::kRounds) {
        groups[g].AddSquares(r, LoadWide(left[g].decoded + i));
      }
    });
  });
  Unroll<kGroups>([&](auto g) KVCOMPRESS_INLINE { groups[g].AddTo(sums); });
}

// Encodes a group of floats and writes what the codes stand for to `restored`.
// False when an error reaches `bound`.
template <typename Codes, typename Rounding>
HWY_INLINE bool RotatedGroup(const float* values, size_t group, float scale,
                             float inverse, float bound, uint8_t* codes,
                             float* restored) {
  const WideFloats d;
  const WideFloat scales = hn::Set(d, scale);
  const WideFloat inverses = hn::Set(d, inverse);
  const size_t half = group / 2;
  WideFloat most = hn::Zero(d);
  const auto round = [&](size_t element) KVCOMPRESS_INLINE {
    const WideFloat x = hn::LoadU(d, values + element);
    const WideFloat rounded = Rounding::Round(x, scales, inverses);
    const WideFloat y = hn::Mul(hn::Sub(rounded, hn::Set(d, kRounder)), scales);
    most = hn::Max(most, hn::Abs(hn::Sub(y, x)));
    hn::StoreU(y, d, restored + element);
    return hn::BitCast(WideWords(), rounded);
  };
  for (size_t j = 0; j < half; j += kWideLanes) {
    const WideWord low = round(j);
    Codes::Store(low, round(j + half), half, codes + j);
  }
  return hn::AllTrue(d, hn::Lt(most, hn::Set(d, bound)));
}

// False when the portable kernel must decide. `group` is that of the layout.
template <class T, typename Codes>
HWY_INLINE bool EncodeGroups(const uint8_t* source, const BlockLayout& layout,
                             size_t group, uint8_t* payload, uint8_t* decoded,
                             LaneSums* sums) {
  constexpr size_t kSize = sizeof(typename T::Bits);
  const size_t groups = layout.count / group;
  uint8_t* codes = payload + ScalesSize(layout.count, group);
  WideFloat max_abs_e = hn::Zero(WideFloats());
  // Scales are found one turn ahead, while the groups before them are encoded:
  // they wait for divisions.
  const auto find = [&](size_t first, Scales* scales) HWY_ATTR {
    return FindScales<T>(source + first * group * kSize,
                         HWY_MIN(kScalesAtOnce, groups - first), group,
                         Codes::kDivisor, payload + 2 * first, scales);
  };
  Scales both[2];
  GroupValues values[kScalesAtOnce];
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
      const size_t at = (first + i) * group;
      const uint8_t* const from = source + at * kSize;
      uint8_t* const to = codes + Codes::Size(at);
      uint8_t* const restored =
          decoded == nullptr ? nullptr : decoded + at * kSize;
      PrefetchAhead<Access::kRead>(from, group * kSize);
      if (!EncodeGroup<T, Codes, Nearest>(
              from, group, scales.scale[i], scales.inverse[i], scales.bound[i],
              to, restored, &values[i], &max_abs_e)) {
        EncodeGroup<T, Codes, AsSpecified<Codes>>(from, group, scales.scale[i],
                                                  0, HUGE_VALF, to, restored,
                                                  &values[i], &max_abs_e);
      }
    }
    const uint8_t* const from = source + first * group * kSize;
    if (count == kScalesAtOnce) {
      MeasureGroups<T, kScalesAtOnce>(from, group, scales.scale, values, sums);
    } else {
      for (size_t i = 0; i < count; ++i) {
        MeasureGroups<T, 1>(from + i * group * kSize, group, scales.scale + i,
                            values + i, sums);
      }
    }
  }
  sums->max_abs_e = hn::GetLane(hn::MaxOfLanes(WideFloats(), max_abs_e));
  return true;
}

template <class T, typename Codes>
bool EncodePlain(const uint8_t* source, const BlockLayout& layout,
                 uint8_t* payload, uint8_t* decoded, LaneSums* sums) {
  if (layout.group == kUsualGroup) {
    return EncodeGroups<T, Codes>(source, layout, kUsualGroup, payload, decoded,
                                  sums);
  }
  return EncodeGroups<T, Codes>(source, layout, layout.group, payload, decoded,
                                sums);
}

// Elements that are rotated at once: whole groups and whole rotations.
inline constexpr size_t kRotatedElements = 512;

// Adds up the distortion of kGroups groups: of values `x` and what they became.
template <size_t kGroups>
HWY_INLINE void MeasureRotatedGroups(const float* x, const float* y,
                                     size_t group, LaneSums* sums,
                                     Double* max_abs_e) {
  GroupSums groups[kGroups];
  Double most[kGroups];
  Unroll<kGroups>([&](auto g) KVCOMPRESS_INLINE {
    groups[g] = GroupSums::Zero();
    most[g] = *max_abs_e;
  });
  ForEachInGroup(group, [&](size_t i, auto r) KVCOMPRESS_INLINE {
    Unroll<kGroups>([&](auto g) KVCOMPRESS_INLINE {
      groups[g].AddValues(r, LoadWide(x + g * group + i),
                          LoadWide(y + g * group + i), &most[g]);
    });
  });
  Unroll<kGroups>([&](auto g) KVCOMPRESS_INLINE {
    groups[g].AddTo(sums);
    *max_abs_e = hn::Max(*max_abs_e, most[g]);
  });
}

// Rotates and encodes up to kRotatedElements. `group` is that of the layout.
template <class T, typename Codes>
HWY_INLINE bool EncodeRotatedPart(const uint8_t* source, BlockLayout layout,
                                  size_t group, uint8_t* scales_out,
                                  uint8_t* codes, uint8_t* decoded,
                                  LaneSums* sums, Double* max_abs_e,
                                  WideFloat* max_abs_x) {
  constexpr size_t kSize = sizeof(typename T::Bits);
  HWY_ALIGN float widened[kRotatedElements];
  HWY_ALIGN float values[kRotatedElements];
  HWY_ALIGN float restored[kRotatedElements];
  const WideFloats d;
  PrefetchAhead<Access::kRead>(source, layout.count * kSize);
  WideFloat faults = hn::Zero(d);  // NaN once something is not finite
  for (size_t i = 0; i < layout.count; i += kWideLanes) {
    const WideFloat x = T::template Load<WideFloats>(source + i * kSize);
    if constexpr (T::kRounds) hn::Store(x, d, widened + i);
    hn::Store(x, d, values + i);
    faults = hn::Or(faults, hn::Sub(x, x));
    *max_abs_x = hn::Max(*max_abs_x, hn::Abs(x));
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
  if (T::kRounds || decoded != nullptr) {
    for (size_t i = 0; i < layout.count; i += kWideLanes) {
      const WideFloat y = T::Round(hn::Load(d, restored + i));
      hn::Store(y, d, restored + i);
      if (decoded != nullptr) T::Store(y, decoded + i * kSize);
    }
  }
  const float* const original =
      T::kRounds ? widened : reinterpret_cast<const float*>(source);
  size_t first = 0;
  for (; first + kScalesAtOnce <= groups; first += kScalesAtOnce) {
    MeasureRotatedGroups<kScalesAtOnce>(original + first * group,
                                        restored + first * group, group, sums,
                                        max_abs_e);
  }
  for (; first < groups; ++first) {
    MeasureRotatedGroups<1>(original + first * group, restored + first * group,
                            group, sums, max_abs_e);
  }
  return true;
}

// `group` is that of the layout.
template <class T, typename Codes>
HWY_INLINE bool EncodeRotatedGroups(const uint8_t* source,
                                    const BlockLayout& layout, size_t group,
                                    uint8_t* payload, uint8_t* decoded,
                                    LaneSums* sums) {
  constexpr size_t kSize = sizeof(typename T::Bits);
  uint8_t* const codes = payload + ScalesSize(layout.count, group);
  Double max_abs_e = hn::Zero(Doubles());
  WideFloat max_abs_x = hn::Zero(WideFloats());
  for (size_t i = 0; i < layout.count; i += kRotatedElements) {
    BlockLayout part = layout;
    part.count = HWY_MIN(kRotatedElements, layout.count - i);
    if (!EncodeRotatedPart<T, Codes>(
            source + i * kSize, part, group, payload + 2 * (i / group),
            codes + Codes::Size(i),
            decoded == nullptr ? nullptr : decoded + i * kSize, sums,
            &max_abs_e, &max_abs_x)) {
      return false;
    }
  }
  sums->max_abs_e = hn::GetLane(hn::MaxOfLanes(Doubles(), max_abs_e));
  sums->max_abs_x = hn::GetLane(hn::MaxOfLanes(WideFloats(), max_abs_x));
  return true;
}

template <class T, typename Codes>
bool EncodeRotated(const uint8_t* source, const BlockLayout& layout,
                   uint8_t* payload, uint8_t* decoded, LaneSums* sums) {
  if (layout.group == kUsualGroup) {
    return EncodeRotatedGroups<T, Codes>(source, layout, kUsualGroup, payload,
                                         decoded, sums);
  }
  return EncodeRotatedGroups<T, Codes>(source, layout, layout.group, payload,
                                       decoded, sums);
}

}  // namespace kvcompress::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
