// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "client/cli/gate.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kvcompress/error.h"
#include "kvcompress/metric_table.h"

namespace kvcompress::cli {
namespace {

// The others are counted.
constexpr size_t kMostSentences = 20;

using Thresholds = v1::QualityThresholds;
using Metrics = v1::QualityMetrics;

Thresholds BoundsFor(const v1::CompressOptions& options, v1::TensorRole role) {
  Thresholds bounds = options.thresholds();
  if (role == v1::TENSOR_ROLE_KEY) bounds.MergeFrom(options.key_thresholds());
  if (role == v1::TENSOR_ROLE_VALUE) {
    bounds.MergeFrom(options.value_thresholds());
  }
  return bounds;
}

// Whether a metric that is not set is so for the shape of the tensor, and would
// otherwise tell of an error. The error of the first token is known wherever
// tokens are.
bool IsUnknown(const v1::TensorReport& tensor, MetricScope scope) {
  return scope != MetricScope::kAll && tensor.metrics().max_error() > 0 &&
         !tensor.metrics().has_first_token_rmse() &&
         (tensor.role() == v1::TENSOR_ROLE_KEY ||
          (scope == MetricScope::kWithTokens &&
           tensor.role() == v1::TENSOR_ROLE_VALUE));
}

// Appends a sentence for each bound that the tensor misses.
void Judge(const v1::TensorReport& tensor, const Thresholds& bounds,
           std::vector<std::string>* sentences) {
  const Metrics& metrics = tensor.metrics();
  for (const MetricTraits& metric : AllMetrics()) {
    if (metric.bound == nullptr) continue;
    const auto* const limit_field = Thresholds::descriptor()->FindFieldByName(
        std::string(metric.bound_name));
    if (!bounds.GetReflection()->HasField(bounds, limit_field)) continue;
    const double limit = bounds.GetReflection()->GetDouble(bounds, limit_field);
    const auto* const field =
        Metrics::descriptor()->FindFieldByName(std::string(metric.name));
    if (field->has_presence() &&
        !metrics.GetReflection()->HasField(metrics, field)) {
      if (IsUnknown(tensor, metric.scope)) {
        sentences->push_back(
            absl::StrCat(metric.name, " of tensor ", QuoteName(tensor.name()),
                         " is not known for its shape, so it is not ",
                         metric.GoodSide(), " ", limit));
      }
      continue;
    }
    const double value = metrics.GetReflection()->GetDouble(metrics, field);
    if (metric.Holds(value, limit)) continue;
    sentences->push_back(absl::StrCat(
        metric.name, " ", value, " of tensor ", QuoteName(tensor.name()),
        " is not ", metric.GoodSide(), " ", limit, ": it misses by ",
        metric.lower_is_better ? value - limit : limit - value));
  }
}

}  // namespace

bool HasGate(const v1::CompressOptions& options) {
  return options.has_thresholds() || options.has_key_thresholds() ||
         options.has_value_thresholds();
}

bool ApplyGate(const v1::CompressOptions& options,
               v1::CompressionReport* report) {
  std::vector<std::string> sentences;
  for (const v1::TensorReport& tensor : report->tensors()) {
    Judge(tensor, BoundsFor(options, tensor.role()), &sentences);
  }
  if (sentences.empty()) return true;
  v1::QualityVerdict* verdict = report->mutable_verdict();
  verdict->set_passed(false);
  for (size_t i = 0; i < sentences.size() && i < kMostSentences; ++i) {
    verdict->add_violations(sentences[i]);
  }
  if (sentences.size() > kMostSentences) {
    verdict->add_violations(absl::StrCat(
        "and ", sentences.size() - kMostSentences, " more bounds are missed"));
  }
  return false;
}

}  // namespace kvcompress::cli
