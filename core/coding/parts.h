// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Things cut into parts that differ by at most one.

#ifndef KVCOMPRESS_CODING_PARTS_H_
#define KVCOMPRESS_CODING_PARTS_H_

#include <algorithm>
#include <cstdint>

namespace kvcompress::coding {

// Part `index` of `total` things in `parts` parts, the longer ones first.
struct Part {
  Part(uint64_t total, uint64_t parts, uint64_t index)
      : first(total / parts * index + std::min(total % parts, index)),
        size(total / parts + (index < total % parts ? 1 : 0)) {}
  uint64_t first;
  uint64_t size;
};

inline uint64_t CeilDivide(uint64_t a, uint64_t b) {
  return a / b + (a % b != 0);
}

}  // namespace kvcompress::coding

#endif  // KVCOMPRESS_CODING_PARTS_H_
