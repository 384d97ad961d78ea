// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "quantization/distortion.h"

#include <algorithm>
#include <cmath>

namespace kvcompress::coding {

void AddDistortion(const DistortionSums& sums, DistortionSums* all,
                   DistortionAccumulator* accumulator) {
  accumulator->Add(sums);
  all->count += sums.count;
  all->sum_x2 += sums.sum_x2;
  all->sum_y2 += sums.sum_y2;
  all->sum_xy += sums.sum_xy;
  all->sum_e2 += sums.sum_e2;
  all->max_abs_e = std::max(all->max_abs_e, sums.max_abs_e);
}

bool KeepsContract(const DistortionSums& sums) {
  // A hair inside the bounds, for other orders of summation.
  constexpr double kMaxError = 0.4999;
  constexpr double kMaxSquare = 0.0999 * 0.0999;
  constexpr double kMinRatio = 63.2;  // 10^1.8 is 63.096
  constexpr double kMinCosine = 0.9901;
  if (sums.sum_e2 == 0) return true;
  return sums.max_abs_e < kMaxError &&
         sums.sum_e2 < kMaxSquare * static_cast<double>(sums.count) &&
         sums.sum_x2 > kMinRatio * sums.sum_e2 &&
         sums.sum_xy >
             kMinCosine * std::sqrt(sums.sum_x2) * std::sqrt(sums.sum_y2);
}

}  // namespace kvcompress::coding
