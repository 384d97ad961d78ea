// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// A block of a group, encoded: from the elements of its tensors to its bytes
// (core/FORMAT.md, "klt-profile"). Internal to the library.

#ifndef KVCOMPRESS_PROFILE_BLOCK_ENCODER_H_
#define KVCOMPRESS_PROFILE_BLOCK_ENCODER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "entropy/symbol_writer.h"
#include "kvcompress/checkpoint.h"
#include "kvcompress/profile.h"
#include "profile/group_encoder.h"
#include "profile/group_format.h"
#include "profile/group_projection.h"
#include "profile/prepared_basis.h"
#include "profile/projector.h"
#include "quantization/trellis.h"

namespace kvcompress::profile {

// What the blocks of a group are encoded from, and how. All outlive encoders.
struct BlockSource {
  const ProfileContent& content;
  const GroupEncoding& encoding;
  const GroupShape& shape;
  absl::Span<const absl::string_view> sources;  // of each tensor, all finite
  // One of these two; with a projection all units are equal.
  std::shared_ptr<const PreparedBasis> basis;
  const GroupProjection* projection = nullptr;
};

// Blocks do not depend on each other. Not thread safe: each thread has its own,
// and keeps it, for it holds what it works in.
class BlockEncoder {
 public:
  // The checkpoint may be null and outlives this. When it stops, results are
  // unspecified.
  BlockEncoder(const BlockSource& source, Checkpoint* checkpoint);

  // Appends the block of tokens [first, first + count) of a batch, at most
  // kMaxBlockTokens. With a projection `squares`, if not null, gets the sum of
  // the squared errors of the components of each token, over the token's step
  // of the preset.
  void Append(uint64_t batch, uint64_t first, size_t count,
              std::string* payload, float* squares);

  // The most that one for such a group holds, in bytes, with a block it
  // returned.
  static uint64_t MaxMemory(const ProfileGroup& group);

 private:
  int OffsetOf(uint64_t token) const {
    return encoding_.offsets.empty() ? 0 : encoding_.offsets[token];
  }
  // The components of tokens [first, first + count).
  const float* Project(uint64_t batch, uint64_t first, size_t count);
  // Quanta of them to quanta_.
  void Quantize(uint64_t batch, uint64_t first, size_t count, float* squares);
  void QuantizeByThresholds(const float* projected, float step, uint64_t first,
                            size_t count);
  void QuantizeByTrellis(const float* projected, float step, uint64_t first,
                         size_t count);
  // The errors of quanta in steps of `of_all` times the preset's.
  void MeasureSquares(const float* projected, float of_all, uint64_t first,
                      size_t count, float* squares) const;
  // Codes up to kMaxLanes components of a block.
  void AppendRun(size_t begin, uint64_t first, size_t count,
                 coding::SymbolWriter* writer) const;

  const ProfileGroup& group_;
  const GroupEncoding& encoding_;
  const float step_;
  const absl::Span<const uint8_t> classes_;  // of the preset
  Checkpoint* const checkpoint_;
  const GroupProjection* const given_;
  std::optional<GroupProjector> projector_;  // where none is given
  const std::vector<float> zeros_;
  std::vector<int32_t> threshold_offsets_;  // of each component
  coding::TrellisEncoder trellis_;
  // Of a block, [tokens, ..].
  std::vector<float> projected_;
  std::vector<int32_t> quanta_;
  std::vector<uint16_t> rows_;
  std::vector<uint16_t> words_;
};

}  // namespace kvcompress::profile

#endif  // KVCOMPRESS_PROFILE_BLOCK_ENCODER_H_
