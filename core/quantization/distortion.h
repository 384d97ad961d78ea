// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// What a tensor lost, whether that is within the bounds that the preset
// "contract" promises, and how far from the targets of its step search.

#ifndef KVCOMPRESS_QUANTIZATION_DISTORTION_H_
#define KVCOMPRESS_QUANTIZATION_DISTORTION_H_

#include <cstdint>

#include "kvcompress/metrics.h"

namespace kvcompress::coding {

// Adds what a block lost to `*all` and to `*accumulator`.
void AddDistortion(const DistortionSums& sums, DistortionSums* all,
                   DistortionAccumulator* accumulator);

// RMSE below 0.10, no error of 0.5, SNR above 18 dB, cosine above 0.99. Made of
// operations whose results are the same on every machine: no logarithm.
bool KeepsContract(const DistortionSums& sums);

// What would have been lost if each error had been so many times as large.
DistortionSums WithErrorsTimes(double factor, DistortionSums sums);

// The targets of "contract" lie a little inside its bounds: how much larger the
// step might be by what a trial lost, and that is something.
double Headroom(const DistortionSums& sums);

// The step that leaves no headroom when errors are even over a step, times the
// norm of their token, whose mean square that is.
double ExpectedStep(uint64_t count, double square_sum, double norm_square);

}  // namespace kvcompress::coding

#endif  // KVCOMPRESS_QUANTIZATION_DISTORTION_H_
