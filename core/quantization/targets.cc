// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "quantization/targets.h"

#include <algorithm>
#include <cmath>

namespace kvcompress::coding {
namespace {

constexpr double kTargetSnr = 65.3;       // as a ratio; 18.15 dB
constexpr double kTargetCosine = 0.0095;  // 1 - cosine similarity

}  // namespace

double Headroom(const DistortionSums& sums) {
  const double count = static_cast<double>(sums.count);
  const double rmse = std::sqrt(sums.sum_e2 / count);
  const double snr = sums.sum_x2 / sums.sum_e2;
  const double cosine =
      sums.sum_xy / std::sqrt(sums.sum_x2) / std::sqrt(sums.sum_y2);
  return std::min({kTargetRmse / rmse, std::sqrt(snr / kTargetSnr),
                   std::sqrt(kTargetCosine / std::max(1 - cosine, 1e-12))});
}

double ExpectedStep(uint64_t count, double square_sum, double norm_square) {
  double step = kTargetRmse * std::sqrt(12 / norm_square);
  // Errors of this step, then larger or smaller ones: the cosine does not quite
  // go with them.
  for (int i = 0; i < 3 && square_sum > 0; ++i) {
    DistortionSums sums = {.count = count};
    sums.sum_e2 = static_cast<double>(count) * norm_square * step * step / 12;
    sums.sum_x2 = sums.sum_xy = square_sum;
    sums.sum_y2 = square_sum + sums.sum_e2;
    step *= Headroom(sums);
  }
  return step;
}

}  // namespace kvcompress::coding
