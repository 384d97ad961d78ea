// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "client/cpp/chunk_cover.h"

#include <limits>

#include "absl/strings/str_cat.h"

namespace kvcompress {

absl::Status ChunkCover::Add(uint64_t offset, uint64_t size) {
  constexpr uint64_t kLargest = std::numeric_limits<int64_t>::max();
  if (head_end_ == 0 && offset == end_ && end_ <= kLargest &&
      size <= kLargest - end_) {
    end_ += size;
    return absl::OkStatus();
  }
  if (offset == head_end_ && size <= head_size_ - head_end_) {
    head_end_ += size;
    return absl::OkStatus();
  }
  return absl::InternalError(absl::StrCat(
      "the server sent ", size, " bytes at offset ", offset, " where offset ",
      head_end_ == 0 ? end_ : head_end_, " was due"));
}

absl::StatusOr<uint64_t> ChunkCover::Finish() const {
  if (head_end_ == head_size_) return end_;
  return absl::InternalError(absl::StrCat("the server sent ", head_end_,
                                          " of the ", head_size_,
                                          " bytes of the file's head"));
}

}  // namespace kvcompress
