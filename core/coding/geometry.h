// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// A tensor as heads of tokens of channels, and how it is cut into blocks.
// Specified in core/FORMAT.md, "ecsq" and "klt".

#ifndef KVCOMPRESS_CODING_GEOMETRY_H_
#define KVCOMPRESS_CODING_GEOMETRY_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "entropy/rans.h"
#include "kvcompress/tensor.h"

namespace kvcompress::coding {

inline constexpr uint64_t kMaxChannels = 4096;        // of a block
inline constexpr uint64_t kMaxDimensions = 1024;      // of a transform
inline constexpr uint64_t kMaxJointDimensions = 256;  // of one across heads

// About so many elements are worked on at once: few enough for the nearest
// cache to have them in all their forms. A token that is longer is a tile of
// its own.
inline constexpr size_t kTileElements = 2048;
inline constexpr size_t kMaxTileElements = kMaxChannels;
static_assert(kTileElements <= kMaxTileElements);

// `tokens` tokens from `first_token` on of `heads` heads from `first_head` on.
struct Block {
  uint64_t first_head = 0;
  size_t heads = 0;
  uint64_t first_token = 0;
  size_t tokens = 0;
};

enum class Cut {
  // Runs of consecutive elements, in the order of the tensor: several heads
  // only where a block has all tokens of the tensor.
  kConsecutive,
  // Runs of tokens of as many heads as can be, which lie apart in the tensor.
  kAcrossHeads,
};

class Geometry {
 public:
  Geometry(const TensorSpec& spec, Cut cut);

  uint64_t heads() const { return heads_; }
  uint64_t tokens() const { return tokens_; }
  uint64_t channels() const { return channels_; }  // of a head

  // Whether the tensor can be cut into such blocks: it has elements, and a head
  // has at most kMaxChannels or, across heads, kMaxDimensions channels. The
  // following need it.
  bool codable() const { return head_parts_ > 0; }

  uint64_t head_parts() const { return head_parts_; }
  uint64_t token_parts() const { return token_parts_; }
  uint64_t block_count() const { return head_parts_ * token_parts_; }
  // The blocks of a part of the heads follow each other. REQUIRES: index <
  // block_count().
  Block block(uint64_t index) const;

  size_t Elements(const Block& block) const {
    return block.heads * block.tokens * channels_;
  }
  size_t Channels(const Block& block) const { return block.heads * channels_; }
  // Of the entropy coder.
  size_t Lanes(const Block& block) const {
    return std::min<size_t>(kMaxLanes, Channels(block));
  }

  // Where a row of a block, a token of a head, begins in the tensor: the index
  // of its first element.
  uint64_t RowBegin(const Block& block, size_t row) const {
    const uint64_t head = block.first_head + row / block.tokens;
    const uint64_t token = block.first_token + row % block.tokens;
    return (head * tokens_ + token) * channels_;
  }

  // Visits the tokens of each head of a block in tiles: visit(head, begin,
  // end).
  template <typename Visit>
  void ForEachTile(const Block& block, Visit visit) const {
    const size_t tokens = TileTokens();
    for (size_t h = 0; h < block.heads; ++h) {
      for (size_t begin = 0; begin < block.tokens; begin += tokens) {
        visit(h, begin, std::min(begin + tokens, block.tokens));
      }
    }
  }

 private:
  size_t TileTokens() const;

  uint64_t heads_ = 1;
  uint64_t tokens_ = 1;
  uint64_t channels_ = 1;
  uint64_t head_parts_ = 0;   // parts that the heads are cut into
  uint64_t token_parts_ = 0;  // parts that the tokens of a head are cut into
};

}  // namespace kvcompress::coding

#endif  // KVCOMPRESS_CODING_GEOMETRY_H_
