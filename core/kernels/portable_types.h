// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The types of elements for the portable kernels: bits to a value and back.
// Wide returns the value that distortion is measured on, which is exact.

#ifndef KVCOMPRESS_KERNELS_PORTABLE_TYPES_H_
#define KVCOMPRESS_KERNELS_PORTABLE_TYPES_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kvcompress/dtype.h"

namespace kvcompress::kernels {

static_assert(std::endian::native == std::endian::little,
              "the format is little-endian and so are these kernels");

struct F32 {
  using Bits = uint32_t;
  static constexpr Bits kLargest = 0x7f7fffff;  // finite
  static float Load(Bits bits) { return std::bit_cast<float>(bits); }
  static double Wide(Bits bits) { return Load(bits); }
  static Bits Round(float value) { return std::bit_cast<uint32_t>(value); }
};

struct F16 {
  using Bits = uint16_t;
  static constexpr Bits kLargest = 0x7bff;
  static float Load(Bits bits) { return HalfToFloat(bits); }
  static double Wide(Bits bits) { return Load(bits); }
  // The largest finite value where rounding would produce infinity.
  static Bits Round(float value) {
    const uint16_t half = FloatToHalf(value);
    return (half & 0x7fff) == 0x7c00 ? static_cast<uint16_t>(half - 1) : half;
  }
};

struct BF16 {
  using Bits = uint16_t;
  static constexpr Bits kLargest = 0x7f7f;
  static float Load(Bits bits) { return BFloat16ToFloat(bits); }
  static double Wide(Bits bits) { return Load(bits); }
  static Bits Round(float value) { return FloatToBFloat16(value); }
};

struct F8E4M3 {
  using Bits = uint8_t;
  static constexpr Bits kLargest = 0x7e;
  static float Load(Bits bits) { return F8E4M3ToFloat(bits); }
  static double Wide(Bits bits) { return Load(bits); }
  static Bits Round(float value) { return FloatToF8E4M3(value); }
};

struct F8E5M2 {
  using Bits = uint8_t;
  static constexpr Bits kLargest = 0x7b;
  static float Load(Bits bits) { return F8E5M2ToFloat(bits); }
  static double Wide(Bits bits) { return Load(bits); }
  static Bits Round(float value) { return FloatToF8E5M2(value); }
};

// Codecs compute in binary32: what that cannot hold is infinite here.
struct F64 {
  using Bits = uint64_t;
  static constexpr Bits kLargest = 0x47efffffe0000000;  // of binary32
  static float Load(Bits bits) { return static_cast<float>(Wide(bits)); }
  static double Wide(Bits bits) { return std::bit_cast<double>(bits); }
  static Bits Round(float value) {
    return std::bit_cast<uint64_t>(static_cast<double>(value));
  }
};

template <typename T>
typename T::Bits LoadBits(const uint8_t* bytes, size_t index) {
  typename T::Bits bits;
  std::memcpy(&bits, bytes + index * sizeof(bits), sizeof(bits));
  return bits;
}

template <typename T>
void StoreBits(typename T::Bits bits, uint8_t* bytes, size_t index) {
  std::memcpy(bytes + index * sizeof(bits), &bits, sizeof(bits));
}

}  // namespace kvcompress::kernels

#endif  // KVCOMPRESS_KERNELS_PORTABLE_TYPES_H_
