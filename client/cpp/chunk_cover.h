// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Checks that the chunks of one file, as kvcompress.v1.FileChunk promises,
// cover it exactly: in ascending order, but for a reserved head that comes
// last.

#ifndef KVCOMPRESS_CLIENT_CPP_CHUNK_COVER_H_
#define KVCOMPRESS_CLIENT_CPP_CHUNK_COVER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace kvcompress {

// Not thread safe.
class ChunkCover {
 public:
  // The first `head_size` bytes of the file come after all others.
  explicit ChunkCover(uint64_t head_size = 0)
      : head_size_(head_size), end_(head_size) {}

  // INTERNAL for a chunk that leaves a gap or overlaps another.
  absl::Status Add(uint64_t offset, uint64_t size);

  // The size of the file. INTERNAL when the head is incomplete.
  absl::StatusOr<uint64_t> Finish() const;

 private:
  const uint64_t head_size_;
  uint64_t head_end_ = 0;  // where the next chunk of the head begins
  uint64_t end_;           // where the next chunk of the rest begins
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_CLIENT_CPP_CHUNK_COVER_H_
