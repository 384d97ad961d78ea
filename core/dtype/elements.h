// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Elements of a tensor as binary32 and back. Internal to the library.

#ifndef KVCOMPRESS_DTYPE_ELEMENTS_H_
#define KVCOMPRESS_DTYPE_ELEMENTS_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "kvcompress/dtype.h"

namespace kvcompress {

// Converts elements at `source` (little-endian, any alignment), exactly.
void LoadElements(DType dtype, const uint8_t* source, absl::Span<float> values);

// Rounds to the type, to nearest even; what would give infinity gives the
// largest finite value of its sign. REQUIRES: no value is NaN.
void StoreElements(DType dtype, absl::Span<const float> values, uint8_t* out);

}  // namespace kvcompress

#endif  // KVCOMPRESS_DTYPE_ELEMENTS_H_
