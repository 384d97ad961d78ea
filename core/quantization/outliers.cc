// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "quantization/outliers.h"

#include <algorithm>
#include <cmath>

#include "tensor/slabs.h"

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

void HideOutliers(float largest, absl::Span<float> values,
                  Checkpoint* checkpoint) {
  if (largest <= kOutlier) return;
  size_t outliers = 0;
  InSlabs(checkpoint, values.size(), [&](size_t first, size_t count) {
    outliers += CountOutliers(values.subspan(first, count));
  });
  if (!OutliersAreRare(outliers, values.size())) return;
  InSlabs(checkpoint, values.size(), [&](size_t first, size_t count) {
    ZeroOutliers(values.subspan(first, count));
  });
}

}  // namespace kvcompress::coding
