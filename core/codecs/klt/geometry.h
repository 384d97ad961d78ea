// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// How klt sees a tensor: blocks of tokens of many heads, in groups of heads
// that share a basis. Specified in core/FORMAT.md, "klt".

#ifndef KVCOMPRESS_CODECS_KLT_GEOMETRY_H_
#define KVCOMPRESS_CODECS_KLT_GEOMETRY_H_

#include <algorithm>
#include <cstddef>

#include "coding/geometry.h"
#include "coding/strip.h"
#include "kvcompress/tensor.h"

namespace kvcompress::klt {

using coding::Block;

class Geometry : public coding::Geometry {
 public:
  explicit Geometry(const TensorSpec& spec)
      : coding::Geometry(spec, coding::Cut::kAcrossHeads) {}

  // The following need codable(). Heads that share a basis; the last group of a
  // block may have fewer.
  size_t GroupHeads() const {
    return std::max<size_t>(coding::kMaxJointDimensions / channels(), 1);
  }
  size_t Groups(const Block& block) const {
    return (block.heads + GroupHeads() - 1) / GroupHeads();
  }
  // Channels of a group, and the first of them within the block.
  size_t GroupFirst(size_t group) const {
    return group * GroupHeads() * channels();
  }
  size_t GroupSize(const Block& block, size_t group) const {
    return std::min(GroupHeads(), block.heads - group * GroupHeads()) *
           channels();
  }
  // Where a group's levels begin among those of the block.
  size_t GroupBegin(const Block& block, size_t group) const {
    return GroupFirst(group) * block.tokens;
  }
  coding::GroupLayout Layout(const Block& block) const {
    return {.channels = Channels(block),
            .group_channels = GroupFirst(1),
            .tokens = block.tokens};
  }
};

}  // namespace kvcompress::klt

#endif  // KVCOMPRESS_CODECS_KLT_GEOMETRY_H_
