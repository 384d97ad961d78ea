// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// How ecsq sees a tensor: heads of tokens of channels, cut into blocks. Each
// block is a run of consecutive elements and decodes without the others, in the
// order of the tensor. Specified in core/FORMAT.md, "ecsq".

#ifndef KVCOMPRESS_CODING_GEOMETRY_H_
#define KVCOMPRESS_CODING_GEOMETRY_H_

#include <cstddef>
#include <cstdint>

#include "kvcompress/tensor.h"

namespace kvcompress::coding {

inline constexpr uint64_t kMaxChannels = 4096;  // of a block
inline constexpr uint64_t kMaxBlockElements = 1 << 18;
inline constexpr uint64_t kMaxBlockTokens = 1024;

// About so many elements are worked on at once: few enough for the nearest
// cache to have them in all their forms. A token that is longer is a tile of
// its own.
inline constexpr size_t kTileElements = 2048;
inline constexpr size_t kMaxTileElements = kMaxChannels;
static_assert(kTileElements <= kMaxTileElements);

// Tokens `first_token` on of `heads` heads; several heads only where the block
// has all tokens of the tensor.
struct Block {
  size_t heads = 0;
  size_t tokens = 0;
  uint64_t first_token = 0;
};

class Geometry {
 public:
  // A tensor without elements has no blocks.
  explicit Geometry(const TensorSpec& spec);

  uint64_t heads() const { return heads_; }
  uint64_t tokens() const { return tokens_; }
  uint64_t channels() const { return channels_; }  // of a head

  // Whether the tensor can be cut into blocks at all: not with more than
  // kMaxChannels channels in a head.
  bool codable() const { return channels_ <= kMaxChannels; }

  // The following need codable().
  uint64_t block_count() const { return head_parts_ * token_parts_; }
  // REQUIRES: index < block_count().
  Block block(uint64_t index) const;

  // Visits the tokens of each head of a block in tiles: visit(head, begin,
  // end).
  template <typename Visit>
  void ForEachTile(const Block& block, Visit visit) const {
    const size_t tokens = TileTokens();
    for (size_t h = 0; h < block.heads; ++h) {
      for (size_t begin = 0; begin < block.tokens; begin += tokens) {
        visit(h, begin,
              begin + tokens < block.tokens ? begin + tokens : block.tokens);
      }
    }
  }

  size_t Lanes(const Block& block) const;
  size_t Elements(const Block& block) const {
    return block.heads * block.tokens * channels_;
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
