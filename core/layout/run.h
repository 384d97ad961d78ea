// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Copies rows between a slab of a tensor and a packed view. Internal to the
// library.

#ifndef KVCOMPRESS_LAYOUT_RUN_H_
#define KVCOMPRESS_LAYOUT_RUN_H_

#include <cstddef>
#include <cstdint>

namespace kvcompress {

// Rows of `channels` elements each, packed on one side and spread over a slab
// on the other.
struct Run {
  // In elements.
  uint64_t slab = 0;    // of the first element
  uint64_t packed = 0;  // of the same
  uint64_t rows = 0;
  uint64_t row_stride = 0;
  uint64_t channels = 0;
  uint64_t channel_stride = 1;
};

// Elements are of 1, 2, 4 or 8 bytes.
void GatherRun(const Run& run, size_t element_size, const char* slab,
               char* packed);
void ScatterRun(const Run& run, size_t element_size, const char* packed,
                char* slab);

}  // namespace kvcompress

#endif  // KVCOMPRESS_LAYOUT_RUN_H_
