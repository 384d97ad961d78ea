// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Judging metrics by thresholds: levels and violations.

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

// INVALID_ARGUMENT when a bound is not a finite number, or an upper bound is
// not positive.
absl::Status ValidateThresholds(const QualityThresholds& thresholds);

enum class QualityLevel : uint8_t { kExcellent, kGood, kAcceptable, kPoor };
inline constexpr int kQualityLevelCount =
    static_cast<int>(QualityLevel::kPoor) + 1;

// "EXCELLENT", "GOOD", "ACCEPTABLE" or "POOR".
absl::string_view QualityLevelName(QualityLevel level);

// A bound that does not hold; see kvcompress.v1.MissedBound. Names are those of
// kvcompress/metric_table.h.
struct MissedBound {
  absl::string_view metric;
  std::optional<double> value;  // nothing: not known for the shape
  absl::string_view bound;
  double limit = 0;
  bool requested = false;
};

struct QualityVerdict {
  bool passed = true;
  QualityLevel level = QualityLevel::kExcellent;
  // One sentence each, such as "max_error 1.2 is not below 0.5".
  std::vector<std::string> violations;
  // The same bounds, in the same order.
  std::vector<MissedBound> missed;
};

// An exact reconstruction passes every SNR bound.
QualityVerdict Judge(const Metrics& metrics,
                     const QualityThresholds& thresholds);

}  // namespace kvcompress

#endif  // KVCOMPRESS_QUALITY_H_
