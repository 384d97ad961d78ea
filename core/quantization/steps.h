// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The step of a quantizer, and what is counted in steps. Specified in
// core/FORMAT.md, "ecsq"; offsets of tokens in "klt".

#ifndef KVCOMPRESS_QUANTIZATION_STEPS_H_
#define KVCOMPRESS_QUANTIZATION_STEPS_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "kernels/rows.h"

namespace kvcompress::coding {

inline constexpr int64_t kMaxQuantum = kernels::kMaxQuantum;
inline constexpr int32_t kMaxMean = 1 << 18;  // in eighths of a step

// Offsets of tokens, in quarter octaves: steps are finer by 2^(offset / 4).
inline constexpr int kMinOffset = -16;
inline constexpr int kMaxOffset = 48;

// Whether `step` can be a step: 2^-100 to 2^100, 11 significant bits.
bool IsStep(float step);
// `value` within those bounds, rounded to 11 bits.
float RoundToStep(double value);

// Step of a token over that of the tensor, 2^(-offset / 4).
float StepFactor(int offset);

// Means of channels in eighths of a step.
std::vector<int32_t> QuantizeMeans(absl::Span<const double> means, float step);

}  // namespace kvcompress::coding

#endif  // KVCOMPRESS_QUANTIZATION_STEPS_H_
