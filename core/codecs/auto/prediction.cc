// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/auto/prediction.h"

#include <algorithm>
#include <cmath>

#include "kvcompress/quality.h"

namespace kvcompress {
namespace {

// What is within these of its bound is tried.
constexpr double kErrorSlack = 0.93;
constexpr double kLargestErrorSlack = 0.8;
constexpr double kDecibelSlack = 0.6;

double Decibels(double power, double rmse) {
  return 10 * std::log10(power / (rmse * rmse));
}

std::optional<double> Raised(std::optional<double> decibels, double by) {
  if (decibels) *decibels += by;
  return decibels;
}

// What the metrics of a candidate become with another error, in a tensor of
// another power; rather too good.
Metrics With(const Metrics& earlier, double earlier_power, double rmse,
             double power) {
  Metrics metrics = earlier;
  const double grown = earlier.rmse == 0 ? 1 : rmse / earlier.rmse;
  metrics.rmse = rmse * kErrorSlack;
  metrics.max_error = earlier.max_error * grown * kLargestErrorSlack;
  if (!earlier.snr_db || power == 0 || earlier_power == 0) return metrics;
  metrics.snr_db = Decibels(power, rmse) + kDecibelSlack;
  const double better = Decibels(power, rmse) - *earlier.snr_db;
  metrics.cosine_similarity = 1 - (1 - earlier.cosine_similarity) *
                                      kErrorSlack * kErrorSlack *
                                      std::pow(10, -better / 10);
  const double raise = std::max(0.0, better) + kDecibelSlack;
  metrics.centred_snr_db = Raised(earlier.centred_snr_db, raise);
  metrics.token_snr_db_p1 = Raised(earlier.token_snr_db_p1, raise);
  return metrics;
}

}  // namespace

std::optional<uint64_t> LikelySize(const AutoFinding& earlier,
                                   const AutoFindings& all,
                                   const AutoFinding& kept, uint64_t elements,
                                   double power,
                                   const QualityThresholds& thresholds) {
  const AutoFinding& reference = all.kept();
  if (!earlier.metrics || !kept.metrics || reference.size == 0) {
    return std::nullopt;
  }
  const double size = static_cast<double>(earlier.size) *
                      static_cast<double>(kept.size) /
                      static_cast<double>(reference.size);
  const double error = earlier.metrics->rmse;
  // Errors are as they were, or follow the values, or those of the other one.
  std::vector<double> errors = {error};
  if (all.power > 0) errors.push_back(error * std::sqrt(power / all.power));
  double usual = error;
  if (reference.metrics->rmse > 0 && kept.metrics->rmse > 0) {
    usual = error * kept.metrics->rmse / reference.metrics->rmse;
    errors.push_back(usual);
  }
  std::optional<double> least;
  for (const double rmse : errors) {
    if (!Judge(With(*earlier.metrics, all.power, rmse, power), thresholds)
             .passed) {
      continue;
    }
    // A bit less of each element where errors are twice as large.
    const double saved =
        rmse > usual && usual > 0
            ? static_cast<double>(elements) / 8 * std::log2(rmse / usual)
            : 0;
    const double likely = std::max(size - saved, 0.0);
    least = std::min(least.value_or(likely), likely);
  }
  if (!least) return std::nullopt;
  return static_cast<uint64_t>(*least);
}

}  // namespace kvcompress
