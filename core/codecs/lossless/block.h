// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// One block of `lossless` (core/FORMAT.md, section 5): the sizes of its planes,
// then the planes, each raw, one byte or coded. Pure and thread safe. Internal
// to the library.

#ifndef KVCOMPRESS_CODECS_LOSSLESS_BLOCK_H_
#define KVCOMPRESS_CODECS_LOSSLESS_BLOCK_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kvcompress/dtype.h"

namespace kvcompress::lossless {

// Elements of a block; the last of a tensor may be shorter.
inline constexpr size_t kBlockElements = 65536;

// A block has at least a byte for each 64 that it decodes to, and for each 32
// of two-byte elements, so that a payload cannot ask for much more work than
// its size pays for.
constexpr size_t LeastSize(size_t count, size_t element_size) {
  return element_size == 2 ? (count + 15) / 16
                           : (count * element_size + 63) / 64;
}

// Bytes of the sizes of an element's planes.
constexpr size_t SizesSize(size_t element_size) {
  return element_size * sizeof(uint32_t);
}

// Appends the block of `elements` to `*payload`. `scratch` has space for
// elements.size() bytes.
void EncodeBlock(absl::string_view elements, DType dtype, uint8_t* scratch,
                 std::string* payload);

// The size of a block of `count` elements that begins with `sizes`, of
// SizesSize(element_size) bytes. Nothing when they break the format. Not
// trusted.
std::optional<size_t> BlockSize(absl::string_view sizes, size_t count,
                                size_t element_size);

// Decodes `block`, whose size BlockSize returned, to `count` elements at
// `elements`. `scratch` has space for as many bytes. DATA_LOSS says what
// breaks the format. Not trusted.
absl::Status DecodeBlock(absl::string_view block, size_t count, DType dtype,
                         uint8_t* scratch, uint8_t* elements);

}  // namespace kvcompress::lossless

#endif  // KVCOMPRESS_CODECS_LOSSLESS_BLOCK_H_
