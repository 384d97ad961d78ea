// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/klt/aims.h"

#include <algorithm>
#include <cmath>

namespace kvcompress::klt {
namespace {

constexpr double kAimedSnr = 65.3;       // as a ratio; 18.15 dB
constexpr double kAimedCosine = 0.0095;  // 1 - cosine similarity

}  // namespace

double Room(const DistortionSums& sums) {
  const double count = static_cast<double>(sums.count);
  const double rmse = std::sqrt(sums.sum_e2 / count);
  const double snr = sums.sum_x2 / sums.sum_e2;
  const double cosine =
      sums.sum_xy / std::sqrt(sums.sum_x2) / std::sqrt(sums.sum_y2);
  return std::min({kAimedRmse / rmse, std::sqrt(snr / kAimedSnr),
                   std::sqrt(kAimedCosine / std::max(1 - cosine, 1e-12))});
}

}  // namespace kvcompress::klt
