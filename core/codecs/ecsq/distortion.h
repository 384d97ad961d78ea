// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// What a tensor lost, and whether that is within the bounds that the preset
// "contract" promises.

#ifndef KVCOMPRESS_CODECS_ECSQ_DISTORTION_H_
#define KVCOMPRESS_CODECS_ECSQ_DISTORTION_H_

#include <cstdint>

#include "absl/types/span.h"
#include "kvcompress/dtype.h"
#include "kvcompress/metrics.h"

namespace kvcompress::ecsq {

// The sums of a whole tensor, and of its blocks of 4,096 elements in
// `*accumulator`. `decoded` holds elements of the type.
DistortionSums Compare(DType dtype, absl::Span<const float> source,
                       const uint8_t* decoded,
                       DistortionAccumulator* accumulator);

// RMSE below 0.10, no error of 0.5, SNR above 18 dB, cosine above 0.99. Made of
// operations that give the same on every machine: no logarithm.
bool KeepsContract(const DistortionSums& sums);

}  // namespace kvcompress::ecsq

#endif  // KVCOMPRESS_CODECS_ECSQ_DISTORTION_H_
