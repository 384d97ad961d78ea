// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "coding/geometry.h"

#include <algorithm>

#include "coding/parts.h"
#include "entropy/rans.h"

namespace kvcompress::coding {

Geometry::Geometry(const TensorSpec& spec) {
  const size_t rank = spec.shape.size();
  for (size_t i = 0; i + 2 < rank; ++i) heads_ *= spec.shape[i];
  if (rank == 1) tokens_ = spec.shape[0];
  if (rank >= 2) {
    tokens_ = spec.shape[rank - 2];
    channels_ = spec.shape[rank - 1];
  }
  if (!codable() || heads_ == 0 || tokens_ == 0 || channels_ == 0) return;
  const uint64_t most_tokens =
      std::min(kMaxBlockTokens, kMaxBlockElements / channels_);
  if (tokens_ <= most_tokens) {
    const uint64_t most_heads = std::min(
        kMaxBlockElements / (tokens_ * channels_), kMaxChannels / channels_);
    head_parts_ = CeilDivide(heads_, most_heads);
    token_parts_ = 1;
  } else {
    head_parts_ = heads_;
    token_parts_ = CeilDivide(tokens_, most_tokens);
  }
}

Block Geometry::block(uint64_t index) const {
  const Part heads(heads_, head_parts_, index / token_parts_);
  const Part tokens(tokens_, token_parts_, index % token_parts_);
  return {.heads = static_cast<size_t>(heads.size),
          .tokens = static_cast<size_t>(tokens.size),
          .first_token = tokens.first};
}

size_t Geometry::TileTokens() const {
  const size_t tokens = kTileElements / channels_;
  return tokens < 8 ? std::max<size_t>(tokens, 1) : tokens / 8 * 8;
}

size_t Geometry::Lanes(const Block& block) const {
  return std::min<size_t>(kMaxLanes, block.heads * channels_);
}

}  // namespace kvcompress::coding
