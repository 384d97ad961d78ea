// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// What the preset "contract" aims at, a little inside its bounds.

#ifndef KVCOMPRESS_CODECS_KLT_AIMS_H_
#define KVCOMPRESS_CODECS_KLT_AIMS_H_

#include <cstdint>

#include "kvcompress/metrics.h"

namespace kvcompress::klt {

inline constexpr double kAimedRmse = 0.0985;

// How much larger the step might be by what a trial lost, and that is
// something.
double Room(const DistortionSums& sums);

// The step that leaves no room when errors are even over a step, times the norm
// of their token, whose mean square that is.
double ExpectedStep(uint64_t count, double square_sum, double norm_square);

}  // namespace kvcompress::klt

#endif  // KVCOMPRESS_CODECS_KLT_AIMS_H_
