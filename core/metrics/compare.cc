// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "metrics/compare.h"

#include <algorithm>
#include <cmath>

namespace kvcompress {

DistortionSums Compare(absl::Span<const float> x, absl::Span<const float> y) {
  DistortionSums sums;
  sums.count = x.size();
  for (size_t i = 0; i < x.size(); ++i) {
    const double dx = x[i];
    const double dy = y[i];
    const double e = dy - dx;
    sums.sum_x2 += dx * dx;
    sums.sum_y2 += dy * dy;
    sums.sum_xy += dx * dy;
    sums.sum_e2 += e * e;
    sums.sum_abs_e += std::abs(e);
    sums.max_abs_e = std::max(sums.max_abs_e, std::abs(e));
    sums.max_abs_x = std::max(sums.max_abs_x, std::abs(dx));
  }
  return sums;
}

}  // namespace kvcompress
