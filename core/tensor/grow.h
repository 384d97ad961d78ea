// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Buffers that are kept, so that the system need not give their pages anew.

#ifndef KVCOMPRESS_TENSOR_GROW_H_
#define KVCOMPRESS_TENSOR_GROW_H_

#include <cstddef>
#include <vector>

namespace kvcompress {

// Makes room for so many; what is there means nothing.
template <typename T>
void Grow(size_t size, std::vector<T>* buffer) {
  if (buffer->size() < size) buffer->resize(size);
}

}  // namespace kvcompress

#endif  // KVCOMPRESS_TENSOR_GROW_H_
