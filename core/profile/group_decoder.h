// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The payload of a group, decoded to quanta. Specified in core/FORMAT.md,
// "klt-profile". Internal to the library.

#ifndef KVCOMPRESS_PROFILE_GROUP_DECODER_H_
#define KVCOMPRESS_PROFILE_GROUP_DECODER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kvcompress/checkpoint.h"
#include "kvcompress/profile.h"
#include "profile/group_format.h"
#include "profile/prepared_basis.h"
#include "profile/quanta_block.h"
#include "profile/residuals.h"
#include "profile/rotation_tables.h"
#include "tensor/workers.h"

namespace kvcompress::profile {

// Immutable once made, and thread safe.
class GroupQuanta {
 public:
  // Reads all of a payload, which is not trusted. DATA_LOSS says which rule of
  // the format it breaks; also where it is of another group. The checkpoint,
  // which may be null, is asked every millisecond or so; its status when it
  // stops. The workers, which may be null, share the blocks.
  static absl::StatusOr<std::shared_ptr<const GroupQuanta>> Parse(
      absl::string_view payload, std::shared_ptr<const Profile> profile,
      size_t group, GroupShape shape, Checkpoint* checkpoint,
      Workers* workers = nullptr);

  // The most that one of such a group holds, in bytes.
  static uint64_t MaxMemory(const ProfileGroup& group, const GroupShape& shape);

  const GroupHeader& header() const { return header_; }
  const GroupShape& shape() const { return shape_; }
  const ProfileContent& content() const { return profile_->content(); }
  const ProfileGroup& group() const { return content().groups[header_.group]; }

  // The quanta of a token that are not 0, less those that RunAt returns, with
  // its unit. Tokens of all batches are counted on. REQUIRES: it is no sink.
  TokenQuanta TokenAt(uint64_t token) const;
  // Tokens that lie together.
  struct Run {
    size_t count = 0;
    // The first components, of which few are 0: [count, inner], with zeros for
    // tokens that are not narrow. Of those that are, TokenAt has the others.
    const int16_t* dense = nullptr;
    size_t inner = 0;  // even
    // Where there are tiles: the block, and the number of the token in it.
    const QuantaBlock* tiles = nullptr;
    size_t first = 0;
  };
  // From a token on, at most `most` of its batch. REQUIRES: it is no sink.
  Run RunAt(uint64_t token, size_t most) const;

  // All components of all tokens are below it.
  size_t components_end() const { return components_end_; }
  // The most that a Run has; it may be more than that.
  size_t inner_end() const { return inner_end_; }

  // Products are made by these, with this matrix, or both are null.
  const kernels::TileKernels* tile_kernels() const { return tile_kernels_; }
  const RestoringTiles* right_tiles() const { return right_tiles_.get(); }

  // The unit of a token, which TokenAt has too.
  float UnitAt(uint64_t token) const;
  // The rotations of tokens of a batch, from one on.
  std::shared_ptr<const std::vector<float>> TableAt(size_t rotation,
                                                    uint64_t position,
                                                    size_t count) const {
    return tables_.Get(content().rotations, rotation, position, count);
  }

  // What the scales of a member are multiplied by.
  float UnitOf(size_t member) const { return units_[member]; }

  // Of a member, for ExceptionCursor.
  absl::string_view ExceptionsOf(size_t member) const {
    return exceptions_.empty() ? absl::string_view() : exceptions_[member];
  }

  // Of a member; null where the payload has none.
  const Residuals* ResidualsOf(size_t member) const {
    return residuals_.empty() ? nullptr : &residuals_[member];
  }

  // The sink `token` of a head: elements, or a scale and codes.
  absl::string_view Sink(size_t member, uint64_t batch, uint64_t head,
                         uint64_t token) const;

 private:
  class Parser;

  GroupQuanta() = default;

  std::shared_ptr<const Profile> profile_;
  const kernels::TileKernels* tile_kernels_ = nullptr;
  std::shared_ptr<const RestoringTiles> right_tiles_;
  GroupShape shape_;
  GroupHeader header_;
  std::vector<float> units_;     // of each member
  std::vector<int8_t> offsets_;  // of the tokens of a batch; empty: all 0
  std::string sinks_;
  std::vector<uint64_t> sink_begins_;  // of each member
  // Where a token is: its block, and the number in that.
  struct Location {
    const QuantaBlock* block;
    size_t index;
  };
  Location LocationOf(uint64_t token) const;

  std::vector<QuantaBlock> blocks_;  // of all batches
  uint64_t blocks_of_batch_ = 0;
  size_t components_end_ = 0;
  size_t inner_end_ = 0;
  std::vector<std::string> exceptions_;  // of each member; empty: none
  std::vector<Residuals> residuals_;     // as these
  RotationTables tables_;
};

}  // namespace kvcompress::profile

#endif  // KVCOMPRESS_PROFILE_GROUP_DECODER_H_
