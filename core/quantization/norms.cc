// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "quantization/norms.h"

#include <algorithm>
#include <cmath>

#include "kernels/kernels.h"

namespace kvcompress::coding {
namespace {

// The code of 2^-126, the least with an inverse.
constexpr uint32_t kMinNorm = 8;

}  // namespace

uint16_t NormCode(absl::Span<const float> values) {
  return NormCode(
      kernels::Active().rows.sum_squares(values.data(), values.size()),
      values.size());
}

uint16_t NormCode(double squares, size_t count) {
  const float norm =
      static_cast<float>(std::sqrt(squares / static_cast<double>(count)));
  const uint32_t bits = std::bit_cast<uint32_t>(norm);
  const uint32_t code = (bits + 0x7ffff + (bits >> 20 & 1)) >> 20;
  if (code < kMinNorm) return 0;
  return static_cast<uint16_t>(std::min<uint32_t>(code, kNormEnd - 1));
}

}  // namespace kvcompress::coding
