// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "kvcompress/quality.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "kvcompress/error.h"

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

absl::Status CheckBound(absl::string_view field, double value, bool upper) {
  if (std::isfinite(value) && (!upper || value > 0)) return absl::OkStatus();
  return MakeError(absl::StatusCode::kInvalidArgument,
                   absl::StrCat("thresholds.", field, " is ", value,
                                ", but must be a finite",
                                upper ? " number above 0" : " number"),
                   {.reason = "INVALID_THRESHOLD",
                    .field = absl::StrCat("options.thresholds.", field)});
}

}  // namespace

absl::Status ValidateThresholds(const QualityThresholds& thresholds) {
  absl::Status status = CheckBound("max_rmse", thresholds.max_rmse, true);
  status.Update(CheckBound("max_error", thresholds.max_error, true));
  status.Update(CheckBound("min_snr_db", thresholds.min_snr_db, false));
  status.Update(CheckBound("min_cosine_similarity",
                           thresholds.min_cosine_similarity, false));
  status.Update(CheckBound("min_centred_snr_db",
                           thresholds.min_centred_snr_db.value_or(0), false));
  status.Update(CheckBound("min_token_snr_db_p1",
                           thresholds.min_token_snr_db_p1.value_or(0), false));
  return status;
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
  const auto expect = [&](bool holds, absl::string_view name, double value,
                          absl::string_view side, double bound) {
    if (holds) return;
    verdict.passed = false;
    verdict.violations.push_back(
        absl::StrCat(name, " ", value, " is not ", side, " ", bound));
  };
  expect(metrics.rmse < thresholds.max_rmse, "rmse", metrics.rmse, "below",
         thresholds.max_rmse);
  expect(metrics.max_error < thresholds.max_error, "max_error",
         metrics.max_error, "below", thresholds.max_error);
  if (metrics.snr_db) {
    expect(*metrics.snr_db > thresholds.min_snr_db, "snr_db", *metrics.snr_db,
           "above", thresholds.min_snr_db);
  }
  expect(metrics.cosine_similarity > thresholds.min_cosine_similarity,
         "cosine_similarity", metrics.cosine_similarity, "above",
         thresholds.min_cosine_similarity);
  const auto expect_above =
      [&](absl::string_view name, const std::optional<double>& value,
          bool unknown, const std::optional<double>& bound) {
        if (!bound) return;
        if (unknown) {
          verdict.passed = false;
          verdict.violations.push_back(absl::StrCat(
              name,
              " is not known for the shape of a key or value, so it "
              "is not above ",
              *bound));
        }
        if (value) expect(*value > *bound, name, *value, "above", *bound);
      };
  expect_above("centred_snr_db", metrics.centred_snr_db,
               metrics.centred_snr_unknown, thresholds.min_centred_snr_db);
  expect_above("token_snr_db_p1", metrics.token_snr_db_p1,
               metrics.token_snr_unknown, thresholds.min_token_snr_db_p1);

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
