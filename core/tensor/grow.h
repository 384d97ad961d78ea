// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Large buffers: for a system to give their pages takes longer than most codecs
// take to fill them. They are kept, and their pages are large where they can
// be, which takes a quarter of the time.

#ifndef KVCOMPRESS_TENSOR_GROW_H_
#define KVCOMPRESS_TENSOR_GROW_H_

#include <cstddef>
#include <vector>

namespace kvcompress {

// Asks for large pages where memory that is about to be filled has more than a
// few. Changes nothing else.
void AskForLargePages(const void* memory, size_t size);

// Reserves so many elements of a string or vector that is about to be filled.
template <typename Buffer>
void Reserve(size_t size, Buffer* buffer) {
  if (buffer->capacity() >= size) return;
  buffer->reserve(size);
  AskForLargePages(buffer->data(), size * sizeof(*buffer->data()));
}

// Makes space for so many; what is there means nothing.
template <typename T>
void Grow(size_t size, std::vector<T>* buffer) {
  if (buffer->size() >= size) return;
  if (buffer->capacity() < size) buffer->clear();
  Reserve(size, buffer);
  buffer->resize(size);
}

}  // namespace kvcompress

#endif  // KVCOMPRESS_TENSOR_GROW_H_
