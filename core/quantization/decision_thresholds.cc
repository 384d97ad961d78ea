// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "quantization/decision_thresholds.h"

#include <algorithm>

#include "entropy/tables.h"
#include "kernels/rows.h"

namespace kvcompress::coding {
namespace {

// Squared error, in squared steps, that a bit is worth.
constexpr double kErrorPerBit = 0.025;

DecisionThresholds MakeDecisionThresholds() {
  const Tables& tables = GetTables();
  DecisionThresholds thresholds;
  for (size_t table = 0; table <= kTables; ++table) {
    thresholds.values.push_back(0);
    for (int32_t n = 1; n < kernels::kThresholdCount; ++n) {
      double saved = 0;  // bits
      if (table < kTables) {
        saved = (static_cast<double>(tables.Cost(table, n)) -
                 static_cast<double>(tables.Cost(table, n - 1))) /
                256;
      }
      // Where (x - (n - 1))^2 and (x - n)^2 + kErrorPerBit * saved are equal.
      thresholds.values.push_back(
          static_cast<float>(n - 0.5 + kErrorPerBit * saved / 2));
    }
  }
  return thresholds;
}

}  // namespace

int32_t DecisionThresholds::Begin(int klass) {
  return kernels::kThresholdCount * std::min(klass, static_cast<int>(kTables));
}

const DecisionThresholds& GetDecisionThresholds() {
  static const DecisionThresholds* const thresholds =
      new DecisionThresholds(MakeDecisionThresholds());
  return *thresholds;
}

}  // namespace kvcompress::coding
