// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Judging metrics: thresholds, levels and violations. The default thresholds
// are those usual for INT4 caches (KVQuant, arXiv 2401.18079).

#ifndef KVCOMPRESS_QUALITY_H_
#define KVCOMPRESS_QUALITY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kvcompress/metrics.h"

namespace kvcompress {

// A bound holds when the metric is strictly on the good side of it.
struct QualityThresholds {
  double max_rmse = 0.10;
  double max_error = 0.5;
  double min_snr_db = 18;
  double min_cosine_similarity = 0.99;
  // Not checked unless set: the first on keys, the second on keys and values,
  // and on others where it is known. An error whose metric is not known, for
  // the shape of its tensor, does not keep the bound.
  std::optional<double> min_centred_snr_db;
  std::optional<double> min_token_snr_db_p1;
};

// INVALID_ARGUMENT when a bound is not a finite number, or an upper bound is
// not positive.
absl::Status ValidateThresholds(const QualityThresholds& thresholds);

enum class QualityLevel : uint8_t { kExcellent, kGood, kAcceptable, kPoor };

// "EXCELLENT", "GOOD", "ACCEPTABLE" or "POOR".
absl::string_view QualityLevelName(QualityLevel level);

struct QualityVerdict {
  bool passed = true;
  QualityLevel level = QualityLevel::kExcellent;
  // One sentence each, such as "max_error 1.2 is not below 0.5".
  std::vector<std::string> violations;
};

// An exact reconstruction passes every SNR bound.
QualityVerdict Judge(const Metrics& metrics,
                     const QualityThresholds& thresholds);

}  // namespace kvcompress

#endif  // KVCOMPRESS_QUALITY_H_
