// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "profile/training/classes.h"

#include <algorithm>

#include "entropy/tables.h"
#include "kernels/kernels.h"
#include "quantization/decision_thresholds.h"

namespace kvcompress::profile {
namespace {

// Classes around the expected one that are tried.
constexpr int kBelow = 6;
constexpr int kAbove = 4;

}  // namespace

ClassFinder::ClassFinder(float step, absl::Span<const float> variances)
    : step_(step), zeros_(variances.size()), histograms_(variances.size()) {
  for (const float variance : variances) {
    const int klass = coding::ClassOf(double{variance} / step / step);
    expected_.push_back(static_cast<uint8_t>(klass));
    threshold_offsets_.push_back(coding::DecisionThresholds::Begin(klass));
  }
}

void ClassFinder::Add(absl::Span<const float> projected, size_t count) {
  const size_t components = expected_.size();
  quanta_.resize(projected.size());
  kernels::Active().rows.quantize(
      projected.data(), count, components,
      {.inverse = 1 / step_,
       .means = zeros_.data(),
       .thresholds = coding::GetDecisionThresholds().values.data(),
       .threshold_offsets = threshold_offsets_.data()},
      quanta_.data());
  for (size_t t = 0; t < count; ++t) {
    for (size_t j = 0; j < components; ++j) {
      const int32_t quantum =
          std::clamp(quanta_[t * components + j], -kMax, kMax);
      ++histograms_[j][static_cast<size_t>(quantum + kMax)];
    }
  }
}

std::vector<uint8_t> ClassFinder::Classes() const {
  const coding::Tables& tables = coding::GetTables();
  std::vector<uint8_t> classes = expected_;
  for (size_t j = 0; j < classes.size(); ++j) {
    const int first = std::max(0, expected_[j] - kBelow);
    const int last = std::min(coding::kClasses - 1, expected_[j] + kAbove);
    uint64_t least = UINT64_MAX;
    for (int klass = first; klass <= last; ++klass) {
      const coding::SplitClass split(klass);
      uint64_t cost = 0;
      for (int32_t quantum = -kMax; quantum <= kMax; ++quantum) {
        const uint32_t bits = tables.Cost(static_cast<size_t>(split.table),
                                          quantum >> split.low_bits) +
                              256 * static_cast<uint32_t>(split.low_bits);
        cost += uint64_t{histograms_[j][static_cast<size_t>(quantum + kMax)]} *
                bits;
      }
      if (cost < least) {
        least = cost;
        classes[j] = static_cast<uint8_t>(klass);
      }
    }
    // Where many quanta lie beyond the histogram it is unreliable.
    const uint32_t beyond = histograms_[j].front() + histograms_[j].back();
    if (beyond > 0) classes[j] = std::max(classes[j], expected_[j]);
  }
  return classes;
}

}  // namespace kvcompress::profile
