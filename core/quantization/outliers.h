// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Values beyond what a cache usually holds. Where they are rare, an encoder
// takes them for zeros and stores them as exceptions.

#ifndef KVCOMPRESS_QUANTIZATION_OUTLIERS_H_
#define KVCOMPRESS_QUANTIZATION_OUTLIERS_H_

#include <cstddef>

#include "absl/types/span.h"

namespace kvcompress::coding {

// Magnitudes above it are outliers.
inline constexpr float kOutlier = 1024;

size_t CountOutliers(absl::Span<const float> values);
bool OutliersAreRare(size_t outliers, size_t elements);
void ZeroOutliers(absl::Span<float> values);

}  // namespace kvcompress::coding

#endif  // KVCOMPRESS_QUANTIZATION_OUTLIERS_H_
