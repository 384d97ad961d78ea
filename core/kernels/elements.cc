// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "kernels/elements.h"

#include <algorithm>
#include <cmath>

namespace kvcompress {

std::optional<size_t> LoadFinite(DType dtype, const uint8_t* source,
                                 absl::Span<float> values) {
  constexpr uint32_t kInfinity = 0x7f800000;
  if (LoadElements(dtype, source, values) < kInfinity) return std::nullopt;
  const auto first =
      std::find_if_not(values.begin(), values.end(),
                       [](float value) { return std::isfinite(value); });
  return static_cast<size_t>(first - values.begin());
}

}  // namespace kvcompress
