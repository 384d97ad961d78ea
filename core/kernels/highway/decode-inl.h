// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Codes back to elements, for the target being compiled.

#include "kernels/highway/rotation-inl.h"
#include "kernels/highway/vectors-inl.h"
#include "kernels/kernels.h"

#if defined(KVCOMPRESS_KERNELS_HIGHWAY_DECODE_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef KVCOMPRESS_KERNELS_HIGHWAY_DECODE_INL_H_
#undef KVCOMPRESS_KERNELS_HIGHWAY_DECODE_INL_H_
#else
#define KVCOMPRESS_KERNELS_HIGHWAY_DECODE_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace kvcompress::kernels::HWY_NAMESPACE {

// Codes of a group to elements of a type.
template <class T, int kBits>
struct GroupDecoder {
  static HWY_INLINE void Decode(const uint8_t* codes, size_t group, float scale,
                                uint8_t* decoded) {
    constexpr size_t kSize = sizeof(typename T::Bits);
    const Floats d;
    const Ints di;
    const Float scales = hn::Set(d, scale);
    const auto put = [&](hn::Vec<Ints> code, size_t element) KVCOMPRESS_INLINE {
      T::Store(T::Round(hn::Mul(hn::ConvertTo(d, code), scales)),
               decoded + element * kSize);
    };
    if constexpr (kBits == 8) {
      for (size_t i = 0; i < group; i += kLanes) {
        put(hn::PromoteTo(
                di, hn::LoadU(SignedBytes(),
                              reinterpret_cast<const int8_t*>(codes) + i)),
            i);
      }
    } else {
      for (size_t i = 0; i < group / 2; i += kLanes) {
        const auto pair = hn::BitCast(
            di, hn::PromoteTo(Words(), hn::LoadU(Bytes(), codes + i)));
        put(hn::ShiftRight<28>(hn::ShiftLeft<28>(pair)), i);
        put(hn::ShiftRight<28>(hn::ShiftLeft<24>(pair)), i + group / 2);
      }
    }
  }
};

// Four bits have 16 values, and 16 bits two bytes: look both up.
template <class T>
HWY_INLINE void LookUpGroup(const uint8_t* codes, size_t group, float scale,
                            uint8_t* decoded) {
  using Table = hn::FixedTag<uint8_t, 16>;
  const Table d;
  const Floats df;
  alignas(16) uint16_t values[16];
  for (size_t i = 0; i < 16; i += kLanes) {
    const auto code = hn::Sub(
        hn::Xor(hn::Iota(Ints(), static_cast<int32_t>(i)), hn::Set(Ints(), 8)),
        hn::Set(Ints(), 8));
    T::Store(T::Round(hn::Mul(hn::ConvertTo(df, code), hn::Set(df, scale))),
             reinterpret_cast<uint8_t*>(values + i));
  }
  const hn::Repartition<uint16_t, Table> ds;
  const auto first = hn::Load(ds, values);
  const auto second = hn::Load(ds, values + 8);
  const auto low_byte = hn::Set(ds, 0xff);
  const hn::FixedTag<uint8_t, 8> half;
  const auto lows =
      hn::Combine(d, hn::TruncateTo(half, hn::And(second, low_byte)),
                  hn::TruncateTo(half, hn::And(first, low_byte)));
  const auto highs =
      hn::Combine(d, hn::TruncateTo(half, hn::ShiftRight<8>(second)),
                  hn::TruncateTo(half, hn::ShiftRight<8>(first)));
  const auto nibble = hn::Set(d, 15);
  const auto put = [&](hn::Vec<Table> code, uint8_t* at) KVCOMPRESS_INLINE {
    const auto low = hn::TableLookupBytes(lows, code);
    const auto high = hn::TableLookupBytes(highs, code);
    hn::StoreU(hn::InterleaveLower(d, low, high), d, at);
    hn::StoreU(hn::InterleaveUpper(d, low, high), d, at + 16);
  };
  for (size_t i = 0; i < group / 2; i += 16) {
    const auto pair = hn::LoadU(d, codes + i);
    put(hn::And(pair, nibble), decoded + 2 * i);
    put(hn::And(hn::BitCast(d, hn::ShiftRight<4>(hn::BitCast(ds, pair))),
                nibble),
        decoded + 2 * i + group);
  }
}
template <>
struct GroupDecoder<F16, 4> {
  static HWY_INLINE void Decode(const uint8_t* codes, size_t group, float scale,
                                uint8_t* decoded) {
    LookUpGroup<F16>(codes, group, scale, decoded);
  }
};
template <>
struct GroupDecoder<BF16, 4> {
  static HWY_INLINE void Decode(const uint8_t* codes, size_t group, float scale,
                                uint8_t* decoded) {
    LookUpGroup<BF16>(codes, group, scale, decoded);
  }
};

// False for a scale that breaks the format.
template <class T, int kBits, bool kPrefetch = true>
bool DecodeGroups(const uint8_t* payload, const BlockLayout& layout,
                  uint8_t* decoded) {
  const size_t group = layout.group;
  const size_t groups = layout.count / group;
  const uint8_t* codes = payload + ScalesSize(layout.count, group);
  for (size_t i = 0; i < groups; ++i) {
    uint16_t bits;
    std::memcpy(&bits, payload + 2 * i, sizeof(bits));
    if (bits >= F16::kInfinity) return false;
    // HalfToFloat of what is finite and has no sign, without a branch.
    const float scale = std::bit_cast<float>(uint32_t{bits} << 13) * 0x1p112f;
    if constexpr (kPrefetch) {
      PrefetchAhead<Access::kWrite>(decoded, group * sizeof(typename T::Bits));
    }
    GroupDecoder<T, kBits>::Decode(codes, group, scale, decoded);
    codes += group * kBits / 8;
    decoded += group * sizeof(typename T::Bits);
  }
  return true;
}

template <class T, int kBits>
bool DecodeRotated(const uint8_t* payload, const BlockLayout& layout,
                   uint8_t* decoded) {
  HWY_ALIGN float values[kBlockElements];
  if (!DecodeGroups<F32, kBits, false>(payload, layout,
                                       reinterpret_cast<uint8_t*>(values))) {
    return false;
  }
  RotateBack(layout.rotation, layout.count, values);
  constexpr size_t kSize = sizeof(typename T::Bits);
  for (size_t i = 0; i < layout.count; i += kLanes) {
    if (i * kSize % kCacheLine == 0) {
      PrefetchAhead<Access::kWrite>(decoded + i * kSize, kCacheLine);
    }
    T::Store(T::Round(hn::Load(Floats(), values + i)), decoded + i * kSize);
  }
  return true;
}

}  // namespace kvcompress::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
