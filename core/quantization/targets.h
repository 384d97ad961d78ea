// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The targets of the preset "contract", a little inside its bounds.

#ifndef KVCOMPRESS_QUANTIZATION_TARGETS_H_
#define KVCOMPRESS_QUANTIZATION_TARGETS_H_

#include <cstdint>

#include "kvcompress/metrics.h"

namespace kvcompress::coding {

inline constexpr double kTargetRmse = 0.0985;

// How much larger the step might be by what a trial lost, and that is
// something.
double Headroom(const DistortionSums& sums);

// The step that leaves no headroom when errors are even over a step, times the
// norm of their token, whose mean square that is.
double ExpectedStep(uint64_t count, double square_sum, double norm_square);

}  // namespace kvcompress::coding

#endif  // KVCOMPRESS_QUANTIZATION_TARGETS_H_
