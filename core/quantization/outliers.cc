// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "quantization/outliers.h"

#include <algorithm>
#include <cmath>

namespace kvcompress::coding {
namespace {

constexpr size_t kRareShare = 64;  // one in so many elements

bool IsOutlier(float value) { return std::abs(value) > kOutlier; }

}  // namespace

size_t CountOutliers(absl::Span<const float> values) {
  return static_cast<size_t>(
      std::count_if(values.begin(), values.end(), IsOutlier));
}

bool OutliersAreRare(size_t outliers, size_t elements) {
  return outliers <= elements / kRareShare;
}

void ZeroOutliers(absl::Span<float> values) {
  std::replace_if(values.begin(), values.end(), IsOutlier, 0.0f);
}

}  // namespace kvcompress::coding
