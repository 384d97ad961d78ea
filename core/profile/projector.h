// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Tokens of a group in the components of its profile. For encoders only:
// nothing that decoders see depends on how exact it is. Internal to the
// library.

#ifndef KVCOMPRESS_PROFILE_PROJECTOR_H_
#define KVCOMPRESS_PROFILE_PROJECTOR_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/tiles.h"
#include "kvcompress/checkpoint.h"
#include "kvcompress/profile.h"
#include "profile/group_format.h"
#include "profile/prepared_basis.h"

namespace kvcompress::profile {

// All ask a checkpoint, which may be null, every few milliseconds: when it
// stops, results are unspecified.

// Gathers tokens of all tensors of a group, the rotation of keys undone.
// Not thread safe. What it is made from must outlive it.
class TokenGatherer {
 public:
  // `sources` has the elements of each tensor, all finite.
  TokenGatherer(const ProfileContent& content, size_t group,
                const GroupShape& shape,
                absl::Span<const absl::string_view> sources,
                uint64_t first_position, Checkpoint* checkpoint)
      : content_(content),
        group_(content.groups[group]),
        shape_(shape),
        sources_(sources),
        first_position_(first_position),
        checkpoint_(checkpoint),
        tables_(content.rotations.size()) {}

  // Writes tokens [first, first + count) of a batch, [count, channels].
  void Gather(uint64_t batch, uint64_t first, size_t count, float* values);

 private:
  const ProfileContent& content_;
  const ProfileGroup& group_;
  const GroupShape& shape_;
  const absl::Span<const absl::string_view> sources_;
  const uint64_t first_position_;
  Checkpoint* const checkpoint_;
  std::vector<std::vector<float>> tables_;  // of each rotation
  std::vector<float> head_;
  std::vector<float> pairs_;
};

// Projects tokens to components by products of 16-bit integers. Not thread
// safe. The group and the checkpoint must outlive it.
class Projector {
 public:
  // `units` are those of the tensors, which their channels are divided by; or
  // none.
  Projector(const ProfileGroup& group,
            std::shared_ptr<const PreparedBasis> basis, Checkpoint* checkpoint,
            absl::Span<const float> units = {});

  // `values` [count, channels] are used up. Writes [count, components].
  // Fastest with TokensAtOnce() or a multiple.
  void Project(size_t count, float* values, float* projected);
  size_t TokensAtOnce() const {
    return has_tiles() ? kernels::kTileTokens : kTokensAtOnce;
  }

  // With tiles also in two steps, for values that come by and by: takes tokens
  // [first, first + count) of up to kernels::kTileTokens, and projects those
  // that were taken.
  bool has_tiles() const { return basis_->kernels() != nullptr; }
  void TakeTiles(size_t first, size_t count, float* values);
  void ProjectTiles(size_t count, float* projected);

 private:
  void ProjectSome(size_t count, float* values, float* projected);
  // The values of a token to `inner` integers, those behind the channels left
  // as they are, and the unit of these.
  float TakeToken(float* row, size_t inner, int16_t* integers);

  const ProfileGroup& group_;
  const std::shared_ptr<const PreparedBasis> basis_;
  Checkpoint* const checkpoint_;
  std::vector<float> factors_;  // of each channel, before the product
  const std::vector<float> zeros_;
  std::vector<float> units_;  // of the products of each token
  std::vector<int16_t> left_;
  std::vector<int32_t> product_;
  coding::Lines left_tiles_;
  std::vector<int32_t> sums_;  // of tiles
};

// Both of these in turn. Not thread safe. What it is made from must outlive it.
class GroupProjector {
 public:
  // As those of TokenGatherer and Projector.
  GroupProjector(const ProfileContent& content, size_t group,
                 const GroupShape& shape,
                 absl::Span<const absl::string_view> sources,
                 uint64_t first_position,
                 std::shared_ptr<const PreparedBasis> basis,
                 Checkpoint* checkpoint, absl::Span<const float> units = {});

  size_t TokensAtOnce() const { return projector_.TokensAtOnce(); }

  // Writes the components of tokens [first, first + count) of a batch, [count,
  // components].
  void Project(uint64_t batch, uint64_t first, size_t count, float* projected);

  // The most that one for such a group holds, in bytes.
  static uint64_t MaxMemory(const ProfileGroup& group);

 private:
  const size_t components_;
  Checkpoint* const checkpoint_;
  TokenGatherer gatherer_;
  Projector projector_;
  std::vector<float> values_;  // [kTokensAtOnce, channels]
};

}  // namespace kvcompress::profile

#endif  // KVCOMPRESS_PROFILE_PROJECTOR_H_
