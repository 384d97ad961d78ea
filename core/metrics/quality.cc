// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "kvcompress/quality.h"

#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kvcompress/error.h"
#include "kvcompress/metric_table.h"

namespace kvcompress {
namespace {

struct Level {
  QualityLevel level;
  double rmse_below;
  double snr_db_above;
};

constexpr Level kLevels[] = {
    {QualityLevel::kExcellent, 0.01, 40},
    {QualityLevel::kGood, 0.05, 30},
    {QualityLevel::kAcceptable, 0.10, 18},
};

}  // namespace

absl::Status ValidateThresholds(const QualityThresholds& thresholds) {
  for (const MetricTraits& metric : AllMetrics()) {
    if (metric.bound == nullptr) continue;
    const std::optional<double> limit = thresholds.*metric.bound;
    const bool positive = metric.lower_is_better;
    if (!limit || (std::isfinite(*limit) && (!positive || *limit > 0))) {
      continue;
    }
    return MakeError(
        absl::StatusCode::kInvalidArgument,
        absl::StrCat("thresholds.", metric.bound_name, " is ", *limit,
                     ", but must be a finite number",
                     positive ? " above 0" : ""),
        {.reason = "INVALID_THRESHOLD",
         .field = absl::StrCat("options.thresholds.", metric.bound_name)});
  }
  return absl::OkStatus();
}

absl::string_view QualityLevelName(QualityLevel level) {
  switch (level) {
    case QualityLevel::kExcellent:
      return "EXCELLENT";
    case QualityLevel::kGood:
      return "GOOD";
    case QualityLevel::kAcceptable:
      return "ACCEPTABLE";
    case QualityLevel::kPoor:
      return "POOR";
  }
  return "POOR";
}

QualityVerdict Judge(const Metrics& metrics,
                     const QualityThresholds& thresholds) {
  QualityVerdict verdict;
  for (const MetricTraits& metric : AllMetrics()) {
    if (metric.bound == nullptr) continue;
    const std::optional<double> limit = thresholds.*metric.bound;
    if (!limit) continue;
    const auto miss = [&](std::optional<double> value, std::string sentence) {
      verdict.missed.push_back(
          {.metric = metric.name,
           .value = value,
           .bound = metric.bound_name,
           .limit = *limit,
           .requested = thresholds.requested.contains(metric.bound_name)});
      verdict.violations.push_back(std::move(sentence));
    };
    if (metric.IsUnknown(metrics)) {
      miss(std::nullopt,
           absl::StrCat(
               metric.name,
               " is not known for the shape of a key or value, so it is not ",
               metric.GoodSide(), " ", *limit));
    }
    const std::optional<double> value = metric.Value(metrics);
    if (value && !metric.Holds(*value, *limit)) {
      miss(value, absl::StrCat(metric.name, " ", *value, " is not ",
                               metric.GoodSide(), " ", *limit));
    }
  }
  verdict.passed = verdict.violations.empty();

  verdict.level = QualityLevel::kPoor;
  for (const Level& level : kLevels) {
    if (metrics.rmse < level.rmse_below &&
        (!metrics.snr_db || *metrics.snr_db > level.snr_db_above)) {
      verdict.level = level.level;
      break;
    }
  }
  return verdict;
}

}  // namespace kvcompress
