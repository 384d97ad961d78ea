// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include <array>
#include <bit>

#include "kvcompress/dtype.h"

namespace kvcompress {
namespace {

// A sign, 7 - kMantissa bits of exponent, and kMantissa of mantissa.
template <int kMantissa>
struct Float8 {
  static constexpr int kBias = (1 << (6 - kMantissa)) - 1;
  static constexpr int kDropped = 23 - kMantissa;

  // Of a magnitude that is finite.
  static constexpr float ToFloat(uint8_t magnitude) {
    constexpr uint32_t kExponents = static_cast<uint32_t>(127 - kBias) << 23;
    if (magnitude >> kMantissa != 0) {
      return std::bit_cast<float>((uint32_t{magnitude} << kDropped) +
                                  kExponents);
    }
    constexpr float kUnit =
        std::bit_cast<float>(kExponents - ((uint32_t{kMantissa} - 1) << 23));
    return static_cast<float>(magnitude) * kUnit;
  }

  static uint8_t FromFloat(float value, uint8_t largest) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    const uint8_t sign = static_cast<uint8_t>(bits >> 24 & 0x80);
    const uint32_t magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) return sign | 0x7f;
    if (magnitude >= std::bit_cast<uint32_t>(ToFloat(largest))) {
      return sign | largest;
    }
    constexpr uint32_t kLeastNormal = static_cast<uint32_t>(128 - kBias) << 23;
    if (magnitude < kLeastNormal) {
      // Adding the power of two whose last place is the unit of subnormals does
      // the rounding.
      constexpr uint32_t kShift = kLeastNormal + (uint32_t{kDropped} << 23);
      const float shifted =
          std::bit_cast<float>(magnitude) + std::bit_cast<float>(kShift);
      return sign |
             static_cast<uint8_t>(std::bit_cast<uint32_t>(shifted) - kShift);
    }
    const uint32_t rounded =
        magnitude + ((1u << (kDropped - 1)) - 1) + (magnitude >> kDropped & 1);
    return sign | static_cast<uint8_t>(
                      (rounded - (static_cast<uint32_t>(127 - kBias) << 23)) >>
                      kDropped);
  }
};

using E4M3 = Float8<3>;
using E5M2 = Float8<2>;
constexpr uint8_t kLargestE4M3 = 0x7e;
constexpr uint8_t kLargestE5M2 = 0x7b;

template <class Type>
constexpr std::array<float, 256> TableOf(uint8_t largest, bool infinity) {
  std::array<float, 256> table{};
  for (int code = 0; code < 256; ++code) {
    const uint8_t magnitude = code & 0x7f;
    float value = Type::ToFloat(magnitude);
    if (magnitude > largest) {
      const bool infinite = infinity && magnitude == largest + 1;
      value = std::bit_cast<float>(infinite ? 0x7f800000u : 0x7fc00000u);
    }
    table[static_cast<size_t>(code)] =
        std::bit_cast<float>(std::bit_cast<uint32_t>(value) |
                             static_cast<uint32_t>(code & 0x80) << 24);
  }
  return table;
}

constexpr std::array<float, 256> kE4M3 = TableOf<E4M3>(kLargestE4M3, false);
constexpr std::array<float, 256> kE5M2 = TableOf<E5M2>(kLargestE5M2, true);

}  // namespace

float F8E4M3ToFloat(uint8_t bits) { return kE4M3[bits]; }
float F8E5M2ToFloat(uint8_t bits) { return kE5M2[bits]; }

uint8_t FloatToF8E4M3(float value) {
  return E4M3::FromFloat(value, kLargestE4M3);
}
uint8_t FloatToF8E5M2(float value) {
  return E5M2::FromFloat(value, kLargestE5M2);
}

}  // namespace kvcompress
