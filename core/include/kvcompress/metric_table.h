// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The metrics of quality, one row each. Verdicts, reports, flags, messages of
// the API and histograms loop over these rows; what a metric means is written
// in kvcompress.v1.QualityMetrics.

#ifndef KVCOMPRESS_METRIC_TABLE_H_
#define KVCOMPRESS_METRIC_TABLE_H_

#include <cstdint>
#include <optional>
#include <variant>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kvcompress/metrics.h"

namespace kvcompress {

// Which tensors have a metric. Those with tokens have the shape [batch, heads,
// tokens, head_dim] and at most 65,536 channels.
enum class MetricScope : uint8_t { kAll, kWithTokens, kKeysWithTokens };

struct MetricTraits {
  // Of the field in Metrics, and in what shows it: kvcompress.v1.QualityMetrics
  // and JSON.
  absl::string_view name;
  std::variant<double Metrics::*, std::optional<double> Metrics::*> field;
  MetricScope scope = MetricScope::kAll;

  // Of the field in QualityThresholds and kvcompress.v1.QualityThresholds;
  // empty when there is no bound on it.
  absl::string_view bound_name = {};
  std::optional<double> QualityThresholds::*bound = nullptr;
  // Whether the bound is an upper one. Such bounds are positive.
  bool lower_is_better = false;

  // The Prometheus histogram over caches, without the prefix "kvcompress_";
  // empty when there is none. The upper bounds of its buckets ascend.
  absl::string_view histogram = {};
  absl::string_view histogram_help = {};
  absl::Span<const double> buckets = {};

  // Nothing when `metrics` has no value.
  std::optional<double> Value(const Metrics& metrics) const;
  // Whether some tensor has an error that this metric cannot measure, for its
  // shape.
  bool IsUnknown(const Metrics& metrics) const;

  // REQUIRES: the metric has a bound.
  bool Holds(double value, double limit) const {
    return lower_is_better ? value < limit : value > limit;
  }
  // "below" or "above": where values are that hold the bound.
  absl::string_view GoodSide() const {
    return lower_is_better ? "below" : "above";
  }
};

// In the order of the fields of kvcompress.v1.QualityMetrics.
absl::Span<const MetricTraits> AllMetrics();

// REQUIRES: a metric has this name.
const MetricTraits& FindMetric(absl::string_view name);

}  // namespace kvcompress

#endif  // KVCOMPRESS_METRIC_TABLE_H_
