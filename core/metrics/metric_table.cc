// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "kvcompress/metric_table.h"

#include <algorithm>

namespace kvcompress {
namespace {

// Bounds of the quality levels and of the default thresholds are among the
// boundaries, so that a dashboard can read off the share of caches on either
// side.
constexpr double kSnrBuckets[] = {0,  5,  10, 12, 15, 18, 20, 22,
                                  25, 30, 35, 40, 50, 60, 80, 100};
constexpr double kCosineBuckets[] = {0.5,     0.9,     0.95,     0.98,   0.985,
                                     0.99,    0.992,   0.994,    0.995,  0.996,
                                     0.997,   0.998,   0.999,    0.9997, 0.9999,
                                     0.99995, 0.99999, 0.999999, 1};
constexpr double kRmseBuckets[] = {0,    0.0001, 0.0003, 0.001, 0.003, 0.01,
                                   0.02, 0.03,   0.05,   0.075, 0.1,   0.2,
                                   0.5,  1,      2,      5};

constexpr MetricTraits kMetrics[] = {
    {.name = "mse", .field = &Metrics::mse},
    {.name = "rmse",
     .field = &Metrics::rmse,
     .bound_name = "max_rmse",
     .bound = &QualityThresholds::max_rmse,
     .lower_is_better = true,
     .histogram = "rmse",
     .histogram_help =
         "Root of the mean squared error of each cache, pooled, in the unit of "
         "its values.",
     .buckets = kRmseBuckets},
    {.name = "mae", .field = &Metrics::mae},
    {.name = "max_error",
     .field = &Metrics::max_error,
     .bound_name = "max_error",
     .bound = &QualityThresholds::max_error,
     .lower_is_better = true},
    {.name = "snr_db",
     .field = &Metrics::snr_db,
     .bound_name = "min_snr_db",
     .bound = &QualityThresholds::min_snr_db,
     .histogram = "snr_decibels",
     .histogram_help = "Signal-to-noise ratio of each cache, pooled; exact "
                       "results are left out.",
     .buckets = kSnrBuckets},
    {.name = "psnr_db", .field = &Metrics::psnr_db},
    {.name = "cosine_similarity",
     .field = &Metrics::cosine_similarity,
     .bound_name = "min_cosine_similarity",
     .bound = &QualityThresholds::min_cosine_similarity,
     .histogram = "cosine_similarity",
     .histogram_help = "Cosine similarity of each cache, pooled.",
     .buckets = kCosineBuckets},
    {.name = "centred_snr_db",
     .field = &Metrics::centred_snr_db,
     .scope = MetricScope::kKeysWithTokens,
     .bound_name = "min_centred_snr_db",
     .bound = &QualityThresholds::min_centred_snr_db,
     .histogram = "centred_snr_decibels",
     .histogram_help =
         "Signal-to-noise ratio of each cache's keys without the mean over "
         "tokens of each channel, pooled; exact results are left out.",
     .buckets = kSnrBuckets},
    {.name = "token_snr_db_p1",
     .field = &Metrics::token_snr_db_p1,
     .scope = MetricScope::kWithTokens,
     .bound_name = "min_token_snr_db_p1",
     .bound = &QualityThresholds::min_token_snr_db_p1,
     .histogram = "token_snr_p1_decibels",
     .histogram_help =
         "1st percentile of the signal-to-noise ratios of single tokens of "
         "single heads, the lowest of each cache's tensors; exact results are "
         "left out.",
     .buckets = kSnrBuckets},
    {.name = "first_token_rmse",
     .field = &Metrics::first_token_rmse,
     .scope = MetricScope::kWithTokens,
     .histogram = "first_token_rmse",
     .histogram_help =
         "RMSE of the first token of each cache, in the unit of its values.",
     .buckets = kRmseBuckets},
};

}  // namespace

std::optional<double> MetricTraits::Value(const Metrics& metrics) const {
  return std::visit(
      [&](auto member) -> std::optional<double> { return metrics.*member; },
      field);
}

bool MetricTraits::IsUnknown(const Metrics& metrics) const {
  switch (scope) {
    case MetricScope::kAll:
      break;
    case MetricScope::kWithTokens:
      return metrics.key_without_tokens || metrics.value_without_tokens;
    case MetricScope::kKeysWithTokens:
      return metrics.key_without_tokens;
  }
  return false;
}

absl::Span<const MetricTraits> AllMetrics() { return kMetrics; }

const MetricTraits& FindMetric(absl::string_view name) {
  return *std::find_if(
      std::begin(kMetrics), std::end(kMetrics),
      [&](const MetricTraits& metric) { return metric.name == name; });
}

}  // namespace kvcompress
