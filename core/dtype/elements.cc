// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "dtype/elements.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace kvcompress {

static_assert(std::endian::native == std::endian::little,
              "the format is little-endian and so is this code");

void LoadElements(DType dtype, const uint8_t* source,
                  absl::Span<float> values) {
  if (dtype == DType::kF32) {
    std::memcpy(values.data(), source, values.size() * sizeof(float));
    return;
  }
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t bits;
    std::memcpy(&bits, source + i * sizeof(bits), sizeof(bits));
    values[i] =
        dtype == DType::kF16 ? HalfToFloat(bits) : BFloat16ToFloat(bits);
  }
}

void StoreElements(DType dtype, absl::Span<const float> values, uint8_t* out) {
  if (dtype == DType::kF32) {
    constexpr float kLargest = 0x1.fffffep127f;
    for (size_t i = 0; i < values.size(); ++i) {
      const float value = std::clamp(values[i], -kLargest, kLargest);
      std::memcpy(out + i * sizeof(value), &value, sizeof(value));
    }
    return;
  }
  const bool half = dtype == DType::kF16;
  const float largest = half ? 65504.0f : 0x1.fep127f;
  for (size_t i = 0; i < values.size(); ++i) {
    const float value = std::clamp(values[i], -largest, largest);
    const uint16_t bits = half ? FloatToHalf(value) : FloatToBFloat16(value);
    std::memcpy(out + i * sizeof(bits), &bits, sizeof(bits));
  }
}

}  // namespace kvcompress
