// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Elements of a tensor as binary32 and back, and what was lost between: the
// kernels in use, by type. Internal to the library.

#ifndef KVCOMPRESS_KERNELS_ELEMENTS_H_
#define KVCOMPRESS_KERNELS_ELEMENTS_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/types/span.h"
#include "kernels/kernels.h"
#include "kernels/lane_sums.h"
#include "kvcompress/dtype.h"
#include "kvcompress/metrics.h"

namespace kvcompress {

// Converts elements at `source` (little-endian, any alignment), exactly, but
// F64 to nearest even, to infinity where binary32 cannot hold them. Returns the
// bits of the largest magnitude.
inline uint32_t LoadElements(DType dtype, const uint8_t* source,
                             absl::Span<float> values) {
  return kernels::Active().rows.load[static_cast<int>(dtype)](
      source, values.size(), values.data());
}

// The largest magnitude among the elements: not finite where one of them is
// not.
inline float LargestMagnitude(DType dtype, const uint8_t* source,
                              size_t count) {
  return std::bit_cast<float>(
      kernels::Active().rows.largest[static_cast<int>(dtype)](source, count));
}

// As LoadElements. Returns the first element that is not finite, if there is
// one.
std::optional<size_t> LoadFinite(DType dtype, const uint8_t* source,
                                 absl::Span<float> values);

// Rounds to the type, to nearest even; what would become infinity becomes the
// largest finite value of its sign, for F64 that of binary32. REQUIRES: no
// value is NaN.
inline void StoreElements(DType dtype, absl::Span<const float> values,
                          uint8_t* out) {
  kernels::Active().rows.store[static_cast<int>(dtype)](values.data(),
                                                        values.size(), out);
}

// What `count` elements lost. REQUIRES: all are finite.
inline DistortionSums CompareElements(DType dtype, const uint8_t* source,
                                      const uint8_t* decoded, size_t count) {
  kernels::LaneSums lanes;
  kernels::Active().rows.compare[static_cast<int>(dtype)](source, decoded, 0,
                                                          count, &lanes);
  return lanes.Total(count);
}

}  // namespace kvcompress

#endif  // KVCOMPRESS_KERNELS_ELEMENTS_H_
