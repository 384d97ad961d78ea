// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Vectors of values and their three types, for the target being compiled.
// Included once for each target: see sets.cc.

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#if defined(KVCOMPRESS_KERNELS_HIGHWAY_VECTORS_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef KVCOMPRESS_KERNELS_HIGHWAY_VECTORS_INL_H_
#undef KVCOMPRESS_KERNELS_HIGHWAY_VECTORS_INL_H_
#else
#define KVCOMPRESS_KERNELS_HIGHWAY_VECTORS_INL_H_
#endif

// For lambdas that are called once for each of many indices: the compiler, left
// alone, makes them functions, and vectors go through memory.
#ifndef KVCOMPRESS_INLINE
#define KVCOMPRESS_INLINE HWY_ATTR __attribute__((always_inline))
#endif

HWY_BEFORE_NAMESPACE();
namespace kvcompress::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The lanes of kernels/lane_sums.h are 8, and sums are of Doubles, at most as
// many. Floats are at most as many too; WideFloats are all that a register has,
// for what adds nothing up or leaves that to Doubles.
inline constexpr size_t kLanes = HWY_MIN(8, HWY_LANES(float));
inline constexpr size_t kDoubleLanes = HWY_MIN(8, HWY_LANES(double));
using Floats = hn::FixedTag<float, kLanes>;
using Ints = hn::RebindToSigned<Floats>;
using Words = hn::RebindToUnsigned<Floats>;
inline constexpr size_t kWideLanes = HWY_MIN(16, HWY_LANES(float));
using WideFloats = hn::FixedTag<float, kWideLanes>;
using WideWords = hn::RebindToUnsigned<WideFloats>;
using Shorts = hn::Rebind<uint16_t, Floats>;
using Bytes = hn::Rebind<uint8_t, Floats>;
using SignedBytes = hn::Rebind<int8_t, Floats>;
using Doubles = hn::FixedTag<double, kDoubleLanes>;
using Float = hn::Vec<Floats>;
using Word = hn::Vec<Words>;
using Double = hn::Vec<Doubles>;
using WideFloat = hn::Vec<WideFloats>;
using WideWord = hn::Vec<WideWords>;

template <size_t kIndex>
using Index = std::integral_constant<size_t, kIndex>;

template <size_t... kIndices, typename Visit>
HWY_INLINE void UnrollSequence(std::index_sequence<kIndices...>, Visit visit) {
  (visit(Index<kIndices>()), ...);
}
// Calls `visit(Index)` for each index below kCount.
template <size_t kCount, typename Visit>
HWY_INLINE void Unroll(Visit visit) {
  UnrollSequence(std::make_index_sequence<kCount>(), visit);
}

inline constexpr size_t kCacheLine = 64;
enum class Access { kRead = 0, kWrite = 1 };

// Asks for memory 4 KiB after what is used now, which may lie beyond the end:
// the processor by itself asks for none beyond a page.
template <Access kAccess>
HWY_INLINE void PrefetchAhead(const uint8_t* used, size_t size) {
  constexpr size_t kAhead = 4096;
  for (size_t i = 0; i < size; i += kCacheLine) {
    __builtin_prefetch(used + kAhead + i, static_cast<int>(kAccess));
  }
}

// Whether the target converts binary16 as IEEE 754 asks; SSE4's emulation in
// Highway 1.0.3 rounds towards zero.
inline constexpr bool kHalfInstructions = HWY_TARGET != HWY_SSE4;

template <class D = Words>
HWY_INLINE hn::Vec<D> LoadShorts(const uint8_t* bytes) {
  const hn::Rebind<uint16_t, D> shorts;
  return hn::PromoteTo(
      D(), hn::LoadU(shorts, reinterpret_cast<const uint16_t*>(bytes)));
}

template <class V>
HWY_INLINE void StoreShorts(V value, uint8_t* bytes) {
  const hn::Rebind<uint16_t, hn::DFromV<V>> shorts;
  hn::StoreU(hn::TruncateTo(shorts, value), shorts,
             reinterpret_cast<uint16_t*>(bytes));
}

// The types of elements. Load and Store take a vector of elements at any
// alignment.
// Round returns the value that the type has for a finite value, to nearest
// even, the largest finite one instead of infinity; Store takes only such
// values.
// A group's largest magnitude is found on Bits as integers, and Value converts
// those of finite magnitudes, widened, into values.
struct F32 {
  using Bits = uint32_t;
  static constexpr Bits kMagnitude = 0x7fffffff;
  static constexpr uint32_t kInfinity = 0x7f800000;
  static constexpr bool kRounds = false;

  template <class D = Floats>
  static HWY_INLINE hn::Vec<D> Load(const uint8_t* bytes) {
    return hn::LoadU(D(), reinterpret_cast<const float*>(bytes));
  }
  template <class V>
  static HWY_INLINE V Round(V value) {
    return value;
  }
  template <class V>
  static HWY_INLINE void Store(V value, uint8_t* bytes) {
    hn::StoreU(value, hn::DFromV<V>(), reinterpret_cast<float*>(bytes));
  }
  template <class D>
  static HWY_INLINE hn::Vec<hn::Rebind<float, D>> Value(D, hn::Vec<D> bits) {
    return hn::BitCast(hn::Rebind<float, D>(), bits);
  }
};

struct BF16 {
  using Bits = uint16_t;
  static constexpr Bits kMagnitude = 0x7fff;
  static constexpr uint32_t kInfinity = 0x7f80;
  static constexpr bool kRounds = true;

  template <class D = Floats>
  static HWY_INLINE hn::Vec<D> Load(const uint8_t* bytes) {
    const hn::RebindToUnsigned<D> words;
    return Value(words, LoadShorts<decltype(words)>(bytes));
  }
  // REQUIRES: the value is far from the largest, as all that are decoded are.
  template <class V>
  static HWY_INLINE V Round(V value) {
    const hn::RebindToUnsigned<hn::DFromV<V>> d;
    const auto bits = hn::BitCast(d, value);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 1));
    const auto sum = hn::Add(hn::Add(bits, hn::Set(d, 0x7fff)), odd);
    return hn::BitCast(hn::DFromV<V>(), hn::And(sum, hn::Set(d, 0xffff0000)));
  }
  template <class V>
  static HWY_INLINE void Store(V value, uint8_t* bytes) {
    const hn::RebindToUnsigned<hn::DFromV<V>> d;
    StoreShorts(hn::ShiftRight<16>(hn::BitCast(d, value)), bytes);
  }
  template <class D>
  static HWY_INLINE hn::Vec<hn::Rebind<float, D>> Value(D, hn::Vec<D> bits) {
    return hn::BitCast(hn::Rebind<float, D>(), hn::ShiftLeft<16>(bits));
  }
};

struct F16 {
  using Bits = uint16_t;
  static constexpr Bits kMagnitude = 0x7fff;
  static constexpr uint32_t kInfinity = 0x7c00;
  static constexpr bool kRounds = true;

  template <class D = Floats>
  static HWY_INLINE hn::Vec<D> Load(const uint8_t* bytes) {
    if constexpr (kHalfInstructions) {
      const hn::Rebind<hwy::float16_t, D> halves;
      return hn::PromoteTo(
          D(),
          hn::LoadU(halves, reinterpret_cast<const hwy::float16_t*>(bytes)));
    } else {
      const hn::RebindToUnsigned<D> d;
      const auto bits = LoadShorts<decltype(d)>(bytes);
      const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(d, 0x8000)));
      const auto magnitude = hn::And(bits, hn::Set(d, kMagnitude));
      const auto finite = hn::BitCast(d, Value(d, magnitude));
      const auto quiet = hn::IfThenElseZero(
          hn::Gt(magnitude, hn::Set(d, kInfinity)), hn::Set(d, 0x400000));
      const auto infinite = hn::Or(hn::Or(hn::ShiftLeft<13>(magnitude), quiet),
                                   hn::Set(d, 0x7f800000));
      const auto is_finite = hn::Lt(magnitude, hn::Set(d, kInfinity));
      return hn::BitCast(
          D(), hn::Or(sign, hn::IfThenElse(is_finite, finite, infinite)));
    }
  }

  template <class V>
  static HWY_INLINE V Round(V value) {
    const hn::DFromV<V> d;
    const V most = hn::Set(d, 65504.0f);
    value = hn::Max(hn::Min(value, most), hn::Neg(most));
    if constexpr (kHalfInstructions) {
      const hn::Rebind<hwy::float16_t, hn::DFromV<V>> halves;
      return hn::PromoteTo(d, hn::DemoteTo(halves, value));
    } else {
      return hn::CopySign(RoundMagnitude(d, hn::Abs(value)), value);
    }
  }

  template <class V>
  static HWY_INLINE void Store(V value, uint8_t* bytes) {
    const hn::DFromV<V> df;
    if constexpr (kHalfInstructions) {
      const hn::Rebind<hwy::float16_t, hn::DFromV<V>> halves;
      hn::StoreU(hn::DemoteTo(halves, value), halves,
                 reinterpret_cast<hwy::float16_t*>(bytes));
    } else {
      const hn::RebindToUnsigned<hn::DFromV<V>> d;
      const auto sign = hn::And(hn::ShiftRight<16>(hn::BitCast(d, value)),
                                hn::Set(d, 0x8000));
      StoreShorts(hn::Or(sign, MagnitudeBits(df, hn::Abs(value))), bytes);
    }
  }

  // Scales by a power of two, so that subnormals need no case of their own.
  template <class D>
  static HWY_INLINE hn::Vec<hn::Rebind<float, D>> Value(D, hn::Vec<D> bits) {
    const hn::Rebind<float, D> d;
    return hn::Mul(hn::BitCast(d, hn::ShiftLeft<13>(bits)),
                   hn::Set(d, 0x1p112f));
  }

  // A magnitude up to 65,504 to a multiple of what binary16 resolves there.
  template <class D>
  static HWY_INLINE hn::Vec<D> RoundMagnitude(D d, hn::Vec<D> magnitude) {
    const hn::RebindToUnsigned<D> du;
    const auto bits = hn::BitCast(du, magnitude);
    const auto odd = hn::And(hn::ShiftRight<13>(bits), hn::Set(du, 1));
    const auto sum = hn::Add(hn::Add(bits, hn::Set(du, 0xfff)), odd);
    const auto normal = hn::BitCast(d, hn::And(sum, hn::Set(du, ~0x1fffu)));
    // Below 2^-14 the unit is 2^-24, the last place of a binary32 at 1/2.
    const auto half = hn::Set(d, 0.5f);
    const auto subnormal = hn::Sub(hn::Add(magnitude, half), half);
    return hn::IfThenElse(hn::Lt(magnitude, hn::Set(d, 0x1p-14f)), subnormal,
                          normal);
  }

  // The bits of what RoundMagnitude returned.
  template <class D>
  static HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> MagnitudeBits(
      D d, hn::Vec<D> magnitude) {
    const hn::RebindToUnsigned<D> du;
    const auto normal = hn::ShiftRight<13>(
        hn::Sub(hn::BitCast(du, magnitude), hn::Set(du, 0x38000000)));
    const auto subnormal =
        hn::Sub(hn::BitCast(du, hn::Add(magnitude, hn::Set(d, 0.5f))),
                hn::Set(du, 0x3f000000));
    const auto small = hn::Lt(magnitude, hn::Set(d, 0x1p-14f));
    return hn::IfThenElse(hn::RebindMask(du, small), subnormal, normal);
  }
};

}  // namespace kvcompress::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
