// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The product of two rows in a fixed order of additions, for what encoders and
// warnings find out about tokens: whether they are alike.

#ifndef KVCOMPRESS_TENSOR_DOT_H_
#define KVCOMPRESS_TENSOR_DOT_H_

#include <cstddef>

namespace kvcompress {

// In eight sums that do not wait for each other, added in their order to that
// of the rest.
inline float Dot(const float* x, const float* y, size_t size) {
  constexpr size_t kLanes = 8;
  float lanes[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] += x[i + lane] * y[i + lane];
    }
  }
  float sum = 0;
  for (; i < size; ++i) sum += x[i] * y[i];
  for (const float lane : lanes) sum += lane;
  return sum;
}

}  // namespace kvcompress

#endif  // KVCOMPRESS_TENSOR_DOT_H_
