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
  const auto load = [&](auto convert) {
    for (size_t i = 0; i < values.size(); ++i) {
      uint16_t bits;
      std::memcpy(&bits, source + i * sizeof(bits), sizeof(bits));
      values[i] = convert(bits);
    }
  };
  if (dtype == DType::kF16) {
    load(HalfToFloat);
  } else {
    // Spelled out, so that the compiler makes vectors of it.
    load([](uint16_t bits) {
      return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
    });
  }
}

void StoreElements(DType dtype, absl::Span<const float> values, uint8_t* out) {
  const auto store = [&](float largest, auto convert) {
    for (size_t i = 0; i < values.size(); ++i) {
      const auto element = convert(std::clamp(values[i], -largest, largest));
      std::memcpy(out + i * sizeof(element), &element, sizeof(element));
    }
  };
  switch (dtype) {
    case DType::kF32:
      return store(0x1.fffffep127f, [](float value) { return value; });
    case DType::kF16:
      return store(65504.0f, FloatToHalf);
    default:
      // FloatToBFloat16 of what is not NaN.
      return store(0x1.fep127f, [](float value) {
        const uint32_t bits = std::bit_cast<uint32_t>(value);
        return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
      });
  }
}

}  // namespace kvcompress
