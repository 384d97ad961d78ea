// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Values to codes of 4 and 8 bits, for the target being compiled.

#include "kernels/highway/vectors-inl.h"

#if defined(KVCOMPRESS_KERNELS_HIGHWAY_CODES_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef KVCOMPRESS_KERNELS_HIGHWAY_CODES_INL_H_
#undef KVCOMPRESS_KERNELS_HIGHWAY_CODES_INL_H_
#else
#define KVCOMPRESS_KERNELS_HIGHWAY_CODES_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace kvcompress::kernels::HWY_NAMESPACE {

// Adding it rounds a small float to an integer, to nearest even, which is then
// in the lowest bits in two's complement.
inline constexpr float kRounder = 12582912.0f;  // 1.5 * 2^23

struct Codes4 {
  static constexpr float kDivisor = 7, kLeast = -8, kMax = 7;
  static constexpr size_t Size(size_t m) { return m / 2; }
  // Writes the codes of two vectors that are half a group apart.
  static HWY_INLINE void Store(WideWord low, WideWord high, size_t,
                               uint8_t* codes) {
    const WideWords d;
    const hn::Rebind<uint8_t, WideWords> bytes;
    const WideWord pair =
        hn::Or(hn::And(low, hn::Set(d, 15)), hn::ShiftLeft<4>(high));
    hn::StoreU(hn::TruncateTo(bytes, pair), bytes, codes);
  }
};

struct Codes8 {
  static constexpr float kDivisor = 127, kLeast = -128, kMax = 127;
  static constexpr size_t Size(size_t m) { return m; }
  static HWY_INLINE void Store(WideWord low, WideWord high, size_t half,
                               uint8_t* codes) {
    const hn::Rebind<uint8_t, WideWords> bytes;
    hn::StoreU(hn::TruncateTo(bytes, low), bytes, codes);
    hn::StoreU(hn::TruncateTo(bytes, high), bytes, codes + half);
  }
};

// Rounds quotients to codes, as floats, with kRounder still added.
struct Nearest {
  // Right where no error reaches Scales::bound.
  static HWY_INLINE WideFloat Round(WideFloat x, WideFloat, WideFloat inverse) {
    return hn::Add(hn::Mul(x, inverse), hn::Set(WideFloats(), kRounder));
  }
};
template <typename Codes>
struct AsSpecified {
  static HWY_INLINE WideFloat Round(WideFloat x, WideFloat scale, WideFloat) {
    const WideFloats d;
    const WideFloat quotient = hn::Div(x, scale);
    // The largest float below 1/2: the sum with any smaller magnitude than 1/2
    // stays below 1.
    const WideFloat half = hn::CopySign(hn::Set(d, 0.49999997f), quotient);
    const WideFloat code = hn::Trunc(hn::Add(quotient, half));
    return hn::Add(hn::Max(hn::Min(code, hn::Set(d, Codes::kMax)),
                           hn::Set(d, Codes::kLeast)),
                   hn::Set(d, kRounder));
  }
};

}  // namespace kvcompress::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
