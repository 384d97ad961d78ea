// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// What a tensor lost, and whether that is within the bounds that the preset
// "contract" promises.

#ifndef KVCOMPRESS_QUANTIZATION_DISTORTION_H_
#define KVCOMPRESS_QUANTIZATION_DISTORTION_H_

#include "kvcompress/metrics.h"

namespace kvcompress::coding {

// Adds what a block lost to `*all` and to `*accumulator`.
void AddDistortion(const DistortionSums& sums, DistortionSums* all,
                   DistortionAccumulator* accumulator);

// RMSE below 0.10, no error of 0.5, SNR above 18 dB, cosine above 0.99. Made of
// operations that give the same on every machine: no logarithm.
bool KeepsContract(const DistortionSums& sums);

}  // namespace kvcompress::coding

#endif  // KVCOMPRESS_QUANTIZATION_DISTORTION_H_
