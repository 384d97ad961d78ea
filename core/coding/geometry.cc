// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "coding/geometry.h"

namespace kvcompress::coding {
namespace {

constexpr uint64_t kMaxTokens = 1024;  // of a block
constexpr uint64_t kMaxConsecutiveElements = 1 << 18;
constexpr uint64_t kMaxElementsAcrossHeads = 1 << 20;

uint64_t CeilDivide(uint64_t a, uint64_t b) { return a / b + (a % b != 0); }

// Part `index` of `total` things in `parts` parts, the longer ones first.
struct Part {
  Part(uint64_t total, uint64_t parts, uint64_t index)
      : first(total / parts * index + std::min(total % parts, index)),
        size(total / parts + (index < total % parts ? 1 : 0)) {}
  uint64_t first;
  uint64_t size;
};

}  // namespace

Geometry::Geometry(const TensorSpec& spec, Cut cut) {
  const size_t rank = spec.shape.size();
  for (size_t i = 0; i + 2 < rank; ++i) heads_ *= spec.shape[i];
  if (rank == 1) tokens_ = spec.shape[0];
  if (rank >= 2) {
    tokens_ = spec.shape[rank - 2];
    channels_ = spec.shape[rank - 1];
  }
  if (heads_ == 0 || tokens_ == 0 || channels_ == 0) return;
  if (cut == Cut::kAcrossHeads) {
    if (rank < 2 || channels_ > kMaxDimensions) return;
    head_parts_ = CeilDivide(heads_, kMaxChannels / channels_);
    const uint64_t channels = CeilDivide(heads_, head_parts_) * channels_;
    token_parts_ = CeilDivide(
        tokens_, std::min(kMaxTokens, kMaxElementsAcrossHeads / channels));
    return;
  }
  if (channels_ > kMaxChannels) return;
  const uint64_t max_tokens =
      std::min(kMaxTokens, kMaxConsecutiveElements / channels_);
  if (tokens_ <= max_tokens) {
    head_parts_ = CeilDivide(
        heads_, std::min(kMaxConsecutiveElements / (tokens_ * channels_),
                         kMaxChannels / channels_));
    token_parts_ = 1;
  } else {
    head_parts_ = heads_;
    token_parts_ = CeilDivide(tokens_, max_tokens);
  }
}

Block Geometry::block(uint64_t index) const {
  const Part heads(heads_, head_parts_, index / token_parts_);
  const Part tokens(tokens_, token_parts_, index % token_parts_);
  return {.first_head = heads.first,
          .heads = static_cast<size_t>(heads.size),
          .first_token = tokens.first,
          .tokens = static_cast<size_t>(tokens.size)};
}

size_t Geometry::TileTokens() const {
  const size_t tokens = kTileElements / channels_;
  return tokens < 8 ? std::max<size_t>(tokens, 1) : tokens / 8 * 8;
}

}  // namespace kvcompress::coding
