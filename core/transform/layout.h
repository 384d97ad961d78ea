// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// How the matrices lie that axes and loadings are made of.

#ifndef KVCOMPRESS_TRANSFORM_LAYOUT_H_
#define KVCOMPRESS_TRANSFORM_LAYOUT_H_

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace kvcompress::coding {

inline size_t RoundUp(size_t size, size_t unit) {
  return (size + unit - 1) / unit * unit;
}

// A matrix [rows, columns] of entries of kValues numbers to [columns, rows], a
// line of a cache after the other. Strides are in entries.
template <size_t kValues = 1, typename T>
void Transpose(const T* from, size_t stride, size_t rows, size_t columns, T* to,
               size_t to_stride) {
  constexpr size_t kLine = 16;
  for (size_t first = 0; first < columns; first += kLine) {
    const size_t end = std::min(first + kLine, columns);
    for (size_t row = 0; row < rows; ++row) {
      for (size_t column = first; column < end; ++column) {
        std::memcpy(to + kValues * (column * to_stride + row),
                    from + kValues * (row * stride + column),
                    kValues * sizeof(T));
      }
    }
  }
}

}  // namespace kvcompress::coding

#endif  // KVCOMPRESS_TRANSFORM_LAYOUT_H_
