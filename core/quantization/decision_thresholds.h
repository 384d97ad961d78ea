// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Where rounding to the nearest gives way to the neighbour towards zero: where
// the bits that it saves are worth the error.

#ifndef KVCOMPRESS_QUANTIZATION_DECISION_THRESHOLDS_H_
#define KVCOMPRESS_QUANTIZATION_DECISION_THRESHOLDS_H_

#include <cstdint>
#include <vector>

namespace kvcompress::coding {

// For kernels::QuantizeStep: a run of kernels::kThresholdCount for each table,
// and one that never gives way for classes with low bits, whose neighbours cost
// about the same.
struct DecisionThresholds {
  // Of a channel's class.
  static int32_t Begin(int klass);

  std::vector<float> values;
};

// Made once. Thread safe.
const DecisionThresholds& GetDecisionThresholds();

}  // namespace kvcompress::coding

#endif  // KVCOMPRESS_QUANTIZATION_DECISION_THRESHOLDS_H_
