// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "quantization/distortion.h"

#include <algorithm>
#include <cmath>

namespace kvcompress::coding {
namespace {

constexpr double kTargetRmse = 0.0985;
constexpr double kTargetSnr = 65.3;       // as a ratio; 18.15 dB
constexpr double kTargetCosine = 0.0095;  // 1 - cosine similarity

}  // namespace

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
  if (sums.max_abs_e == 0) return true;
  return sums.max_abs_e < kMaxError &&
         sums.sum_e2 < kMaxSquare * static_cast<double>(sums.count) &&
         sums.sum_x2 > kMinRatio * std::max(sums.sum_e2, kLeastSquares) &&
         sums.sum_xy >
             kMinCosine * std::sqrt(sums.sum_x2) * std::sqrt(sums.sum_y2);
}

DistortionSums WithErrorsTimes(double factor, DistortionSums sums) {
  if (factor == 1) return sums;  // to the last bit
  const double x_e = sums.sum_xy - sums.sum_x2;
  sums.sum_e2 *= factor * factor;
  sums.sum_xy = sums.sum_x2 + factor * x_e;
  sums.sum_y2 = sums.sum_x2 + 2 * factor * x_e + sums.sum_e2;
  sums.max_abs_e *= factor;
  return sums;
}

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
