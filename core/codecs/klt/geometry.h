// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// How klt sees a tensor: parts of its heads, each cut into blocks of tokens. A
// block has a run of tokens of several heads, which lie apart in the tensor.
// Specified in core/FORMAT.md, "klt".

#ifndef KVCOMPRESS_CODECS_KLT_GEOMETRY_H_
#define KVCOMPRESS_CODECS_KLT_GEOMETRY_H_

#include <cstddef>
#include <cstdint>

#include "kvcompress/tensor.h"

namespace kvcompress::klt {

// Dimensions of a group of heads that share a basis.
inline constexpr uint64_t kMaxDimensions = 256;

// `tokens` tokens from `first_token` on of `heads` heads from `first_head` on.
struct Block {
  uint64_t first_head = 0;
  size_t heads = 0;
  uint64_t first_token = 0;
  size_t tokens = 0;
};

class Geometry {
 public:
  explicit Geometry(const TensorSpec& spec);

  uint64_t heads() const { return heads_; }
  uint64_t tokens() const { return tokens_; }
  uint64_t channels() const { return channels_; }  // of a head

  // Whether the tensor can be cut into such blocks: it has elements, and at
  // most kMaxDimensions channels in a head. The following need it.
  bool codable() const { return head_parts_ > 0; }

  uint64_t head_parts() const { return head_parts_; }
  uint64_t token_parts() const { return token_parts_; }
  // REQUIRES: head_part < head_parts(), token_part < token_parts().
  Block block(uint64_t head_part, uint64_t token_part) const;

  size_t Elements(const Block& block) const {
    return block.heads * block.tokens * channels_;
  }
  size_t Channels(const Block& block) const { return block.heads * channels_; }

  // Heads that share a basis; the last group of a block may have fewer.
  size_t GroupHeads() const { return kMaxDimensions / channels_; }
  size_t Groups(const Block& block) const {
    return (block.heads + GroupHeads() - 1) / GroupHeads();
  }
  // Channels of a group, and the first of them within the block.
  size_t GroupFirst(size_t group) const {
    return group * GroupHeads() * channels_;
  }
  size_t GroupSize(const Block& block, size_t group) const;
  size_t GroupOf(size_t channel) const {
    return channel / (GroupHeads() * channels_);
  }
  // Where a group's levels begin among those of the block.
  size_t GroupBegin(const Block& block, size_t group) const {
    return GroupFirst(group) * block.tokens;
  }
  // Where the levels of a component are among those of the block: that of the
  // first token, and how far the next token's is.
  struct Levels {
    size_t begin;
    size_t stride;
  };
  Levels LevelsOf(const Block& block, size_t component) const {
    const size_t group = GroupOf(component);
    return {.begin = GroupBegin(block, group) + component - GroupFirst(group),
            .stride = GroupSize(block, group)};
  }

  // Where a row of a block, a token of a head, begins in the tensor: the index
  // of its first element.
  uint64_t RowBegin(const Block& block, size_t row) const {
    const uint64_t head = block.first_head + row / block.tokens;
    const uint64_t token = block.first_token + row % block.tokens;
    return (head * tokens_ + token) * channels_;
  }

 private:
  uint64_t heads_ = 1;
  uint64_t tokens_ = 1;
  uint64_t channels_ = 1;
  uint64_t head_parts_ = 0;
  uint64_t token_parts_ = 0;
};

}  // namespace kvcompress::klt

#endif  // KVCOMPRESS_CODECS_KLT_GEOMETRY_H_
