// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// One block of `sparse`. Specified in core/FORMAT.md, "sparse".

#ifndef KVCOMPRESS_CODECS_SPARSE_BLOCK_H_
#define KVCOMPRESS_CODECS_SPARSE_BLOCK_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace kvcompress::sparse {

inline constexpr size_t kBlockElements = 4096;
// Sparsity is counted in this many parts.
inline constexpr uint64_t kWhole = 10000;

struct BlockShape {
  size_t elements = 0;
  size_t group = 0;       // elements that share a scale
  uint64_t sparsity = 0;  // of kWhole

  size_t Kept() const { return elements - elements * sparsity / kWhole; }
  size_t Groups() const { return (elements + group - 1) / group; }
  size_t BitmapSize() const { return (elements + 7) / 8; }
  // The bitmap, the scales, the codes.
  size_t PayloadSize() const {
    return BitmapSize() + 2 * Groups() + (Kept() + 1) / 2;
  }
};

// Encodes finite values and replaces them by what decoding yields, before it is
// rounded to the source type. Returns the index of a value that no scale can
// hold.
std::optional<size_t> EncodeBlock(BlockShape shape, absl::Span<float> values,
                                  uint8_t* payload);

// DATA_LOSS when the payload breaks the format.
absl::Status DecodeBlock(BlockShape shape, const uint8_t* payload,
                         absl::Span<float> values);

}  // namespace kvcompress::sparse

#endif  // KVCOMPRESS_CODECS_SPARSE_BLOCK_H_
