// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/klt/geometry.h"

#include <algorithm>

#include "coding/parts.h"

namespace kvcompress::klt {
namespace {

using coding::CeilDivide;
using coding::Part;

constexpr uint64_t kMaxChannels = 4096;  // of a block
constexpr uint64_t kMaxTokens = 1024;
constexpr uint64_t kMaxElements = 1 << 20;

}  // namespace

Geometry::Geometry(const TensorSpec& spec) {
  const size_t rank = spec.shape.size();
  if (rank < 2) return;
  for (size_t i = 0; i + 2 < rank; ++i) heads_ *= spec.shape[i];
  tokens_ = spec.shape[rank - 2];
  channels_ = spec.shape[rank - 1];
  if (heads_ == 0 || tokens_ == 0 || channels_ == 0 ||
      channels_ > kMaxDimensions) {
    return;
  }
  head_parts_ = CeilDivide(heads_, kMaxChannels / channels_);
  const uint64_t channels = CeilDivide(heads_, head_parts_) * channels_;
  token_parts_ =
      CeilDivide(tokens_, std::min(kMaxTokens, kMaxElements / channels));
}

Block Geometry::block(uint64_t head_part, uint64_t token_part) const {
  const Part heads(heads_, head_parts_, head_part);
  const Part tokens(tokens_, token_parts_, token_part);
  return {.first_head = heads.first,
          .heads = static_cast<size_t>(heads.size),
          .first_token = tokens.first,
          .tokens = static_cast<size_t>(tokens.size)};
}

size_t Geometry::GroupSize(const Block& block, size_t group) const {
  const size_t heads =
      std::min(GroupHeads(), block.heads - group * GroupHeads());
  return heads * channels_;
}

}  // namespace kvcompress::klt
