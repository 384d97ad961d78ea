// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "quantization/steps.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace kvcompress::coding {

bool IsStep(float step) {
  return step >= 0x1p-100f && step <= 0x1p100f &&
         (std::bit_cast<uint32_t>(step) & 0x1fff) == 0;
}

float RoundToStep(double value) {
  const float step =
      static_cast<float>(std::clamp<double>(value, 0x1p-100, 0x1p100));
  const uint32_t bits = std::bit_cast<uint32_t>(step);
  return std::bit_cast<float>((bits + 0xfff + (bits >> 13 & 1)) & ~0x1fffu);
}

float StepFactor(int offset) {
  // 2^(-i / 4), rounded to nearest.
  constexpr uint32_t kQuarters[] = {0x3f800000, 0x3f5744fd, 0x3f3504f3,
                                    0x3f1837f0};
  const int whole = offset >> 2;
  return std::bit_cast<float>(kQuarters[offset & 3] -
                              (static_cast<uint32_t>(whole) << 23));
}

std::vector<int32_t> QuantizeMeans(absl::Span<const double> means, float step) {
  const double unit = static_cast<double>(step) / 8;
  std::vector<int32_t> quantized;
  quantized.reserve(means.size());
  for (const double mean : means) {
    quantized.push_back(static_cast<int32_t>(
        std::clamp<double>(std::round(mean / unit), -kMaxMean, kMaxMean)));
  }
  return quantized;
}

}  // namespace kvcompress::coding
