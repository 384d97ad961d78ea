// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "client/cli/gate.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kvcompress/error.h"

namespace kvcompress::cli {
namespace {

// The others are counted.
constexpr size_t kMostSentences = 20;

// A bound and the metric it is for, by the numbers of their fields.
struct Bound {
  int threshold;
  int metric;
  bool upper;
};

using Thresholds = v1::QualityThresholds;
using Metrics = v1::QualityMetrics;

constexpr Bound kBounds[] = {
    {Thresholds::kMaxRmseFieldNumber, Metrics::kRmseFieldNumber, true},
    {Thresholds::kMaxErrorFieldNumber, Metrics::kMaxErrorFieldNumber, true},
    {Thresholds::kMinSnrDbFieldNumber, Metrics::kSnrDbFieldNumber, false},
    {Thresholds::kMinCosineSimilarityFieldNumber,
     Metrics::kCosineSimilarityFieldNumber, false},
    {Thresholds::kMinCentredSnrDbFieldNumber, Metrics::kCentredSnrDbFieldNumber,
     false},
    {Thresholds::kMinTokenSnrDbP1FieldNumber, Metrics::kTokenSnrDbP1FieldNumber,
     false},
};

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
bool IsUnknown(const v1::TensorReport& tensor, int metric) {
  const bool of_keys = metric == Metrics::kCentredSnrDbFieldNumber;
  if (!of_keys && metric != Metrics::kTokenSnrDbP1FieldNumber) return false;
  const v1::TensorRole role = tensor.role();
  return tensor.metrics().max_error() > 0 &&
         !tensor.metrics().has_first_token_rmse() &&
         (role == v1::TENSOR_ROLE_KEY ||
          (!of_keys && role == v1::TENSOR_ROLE_VALUE));
}

// Appends a sentence for each bound that the tensor misses.
void Judge(const v1::TensorReport& tensor, const Thresholds& bounds,
           std::vector<std::string>* sentences) {
  const auto& metrics = tensor.metrics();
  for (const Bound& each : kBounds) {
    const auto* const limit_field =
        Thresholds::descriptor()->FindFieldByNumber(each.threshold);
    const auto* const field =
        Metrics::descriptor()->FindFieldByNumber(each.metric);
    const auto& reflection = *Metrics::GetReflection();
    if (!Thresholds::GetReflection()->HasField(bounds, limit_field)) continue;
    const double limit =
        Thresholds::GetReflection()->GetDouble(bounds, limit_field);
    if (field->has_presence() && !reflection.HasField(metrics, field)) {
      if (IsUnknown(tensor, each.metric)) {
        sentences->push_back(absl::StrCat(
            field->name(), " of tensor ", QuoteName(tensor.name()),
            " is not known for its shape, so it is not above ", limit));
      }
      continue;
    }
    const double value = reflection.GetDouble(metrics, field);
    if (each.upper ? value < limit : value > limit) continue;
    sentences->push_back(absl::StrCat(
        field->name(), " ", value, " of tensor ", QuoteName(tensor.name()),
        " is not ", each.upper ? "below " : "above ", limit, ": it misses by ",
        each.upper ? value - limit : limit - value));
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
