// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Work on a whole tensor, cut into slabs with a look at the checkpoint before
// each. Internal to the library.

#ifndef KVCOMPRESS_TENSOR_SLABS_H_
#define KVCOMPRESS_TENSOR_SLABS_H_

#include <algorithm>
#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"
#include "kvcompress/checkpoint.h"
#include "tensor/grow.h"

namespace kvcompress {

// Elements or bytes that take about a millisecond at most.
inline constexpr size_t kSlab = 256 << 10;

// visit(first, size) for one slab of `count` after the other. False when it
// stopped before the end.
template <typename Visit>
bool InSlabs(Checkpoint* checkpoint, size_t count, Visit visit) {
  for (size_t first = 0; first < count; first += kSlab) {
    if (Stops(checkpoint)) return false;
    visit(first, std::min(kSlab, count - first));
  }
  return true;
}

// Resizes a buffer, whose pages the system may have to give first. What it had
// may be lost.
template <typename Buffer>
void ResizeInSlabs(Checkpoint* checkpoint, size_t size, Buffer* buffer) {
  if (buffer->capacity() < size) {
    buffer->clear();
    Reserve(size, buffer);
  }
  if (size <= buffer->size()) return buffer->resize(size);
  const size_t kept = buffer->size();
  InSlabs(checkpoint, size - kept, [&](size_t first, size_t count) {
    buffer->resize(kept + first + count);
  });
}

// Appends `*bytes`, which is lost; where there are none before, the two strings
// change places. The memory that is left in `*bytes` can be used again.
inline void AppendInSlabs(Checkpoint* checkpoint, std::string* bytes,
                          std::string* out) {
  if (out->empty()) return bytes->swap(*out);
  InSlabs(checkpoint, bytes->size(), [&](size_t first, size_t count) {
    out->append(*bytes, first, count);
  });
}

}  // namespace kvcompress

#endif  // KVCOMPRESS_TENSOR_SLABS_H_
