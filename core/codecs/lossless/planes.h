// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The byte planes of `lossless` (core/FORMAT.md, section 5): of F32, F16, BF16
// and F64 exponents, then signs and mantissas; of all others their bytes from
// the highest. Pure and thread safe. Internal to the library.

#ifndef KVCOMPRESS_CODECS_LOSSLESS_PLANES_H_
#define KVCOMPRESS_CODECS_LOSSLESS_PLANES_H_

#include <cstddef>
#include <cstdint>

#include "kvcompress/dtype.h"
#include "kvcompress/metrics.h"

namespace kvcompress::lossless {

// Cuts `count` elements into as many planes as each has bytes: plane p begins
// at planes + p * count.
void SplitPlanes(const uint8_t* elements, size_t count, DType dtype,
                 uint8_t* planes);

// The reverse.
void JoinPlanes(const uint8_t* planes, size_t count, DType dtype,
                uint8_t* elements);

// The sums over elements that are decoded as they were. All are counted; those
// that binary32 cannot hold, NaN and infinity among them, and those of types
// that are no numbers, are left out of the sums and of the largest magnitude.
// They are exact like the rest: every error is 0.
DistortionSums MeasureExact(const uint8_t* elements, size_t count, DType dtype);

}  // namespace kvcompress::lossless

#endif  // KVCOMPRESS_CODECS_LOSSLESS_PLANES_H_
