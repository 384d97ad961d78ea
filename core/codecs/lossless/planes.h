// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The byte planes of `lossless` (core/FORMAT.md, section 5): exponents, then
// signs and mantissas. Pure and thread safe. Internal to the library.

#ifndef KVCOMPRESS_CODECS_LOSSLESS_PLANES_H_
#define KVCOMPRESS_CODECS_LOSSLESS_PLANES_H_

#include <cstddef>
#include <cstdint>

#include "kvcompress/dtype.h"
#include "kvcompress/metrics.h"

namespace kvcompress::lossless {

inline constexpr size_t kMaxPlanes = 4;

// Cuts `count` elements of `element_size` (2 or 4) bytes into as many planes:
// plane p begins at planes + p * count.
void SplitPlanes(const uint8_t* elements, size_t count, size_t element_size,
                 uint8_t* planes);

// The reverse.
void JoinPlanes(const uint8_t* planes, size_t count, size_t element_size,
                uint8_t* elements);

// The sums over elements that are decoded as they were. All are counted; NaN
// and infinity, which have no sum of squares, are left out of the sums and of
// the largest magnitude. They are exact like the rest: every error is 0.
DistortionSums MeasureExact(const uint8_t* elements, size_t count, DType dtype);

}  // namespace kvcompress::lossless

#endif  // KVCOMPRESS_CODECS_LOSSLESS_PLANES_H_
