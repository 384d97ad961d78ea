// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Cuts a byte stream into the blocks of a codec, whatever chunks it comes in. A
// block that lies whole within a chunk is passed on where it is; only one that
// straddles chunks is copied. Internal to the library.

#ifndef KVCOMPRESS_TENSOR_BLOCK_STREAM_H_
#define KVCOMPRESS_TENSOR_BLOCK_STREAM_H_

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace kvcompress {

class BlockStream {
 public:
  // Blocks of `block_size` bytes out of `total_size`; the last may be shorter.
  // REQUIRES: block_size > 0 where total_size > 0.
  BlockStream(uint64_t total_size, uint64_t block_size)
      : remaining_(total_size), block_size_(block_size) {}

  // The next block, from the front of `*bytes`, valid until the next call.
  // Empty when it is not complete: then `*bytes` was taken whole.
  absl::string_view Next(absl::string_view* bytes) {
    if (given_) partial_.clear();
    given_ = false;
    const size_t size = std::min(remaining_, block_size_);
    absl::string_view block = bytes->substr(0, size - partial_.size());
    bytes->remove_prefix(block.size());
    if (block.size() < size) {
      partial_.reserve(size);
      partial_.append(block.data(), block.size());
      if (partial_.size() < size) return {};
      block = partial_;
    }
    given_ = true;
    remaining_ -= size;
    return block;
  }

  // Calls `consume(absl::string_view block)` for each block that is complete
  // with `bytes`, and stops at its first error. REQUIRES: no more bytes than
  // total_size in all.
  //
  // `consume` may set the size of the blocks that follow.
  template <typename Consume>
  absl::Status Append(absl::string_view bytes, Consume consume) {
    while (!bytes.empty()) {
      const absl::string_view block = Next(&bytes);
      if (block.empty()) break;
      absl::Status status = consume(block);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  void set_block_size(uint64_t block_size) { block_size_ = block_size; }

  // Whether every block was given.
  bool done() const { return remaining_ == 0; }

 private:
  uint64_t remaining_;
  uint64_t block_size_;
  std::string partial_;  // of a block that straddles chunks
  bool given_ = false;   // whether the last call of Next returned a block
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_TENSOR_BLOCK_STREAM_H_
