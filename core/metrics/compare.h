// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The distortion of one block of elements. Internal to the library.

#ifndef KVCOMPRESS_METRICS_COMPARE_H_
#define KVCOMPRESS_METRICS_COMPARE_H_

#include "absl/types/span.h"
#include "kvcompress/metrics.h"

namespace kvcompress {

// The sums over the source values `x` and the decoded values `y`, in order.
// REQUIRES: equal sizes.
DistortionSums Compare(absl::Span<const float> x, absl::Span<const float> y);

}  // namespace kvcompress

#endif  // KVCOMPRESS_METRICS_COMPARE_H_
