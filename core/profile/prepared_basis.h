// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The matrices of a group, in the order of products. Internal to the library.

#ifndef KVCOMPRESS_PROFILE_PREPARED_BASIS_H_
#define KVCOMPRESS_PROFILE_PREPARED_BASIS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/tiles.h"
#include "kvcompress/checkpoint.h"
#include "kvcompress/profile.h"
#include "transform/basis.h"

namespace kvcompress::profile {

// Components that are projected to at once: a panel of them stays in a cache
// while tokens pass by.
inline constexpr size_t kPanel = 32;
// Tokens that should pass by one after the other, so that these stay there too.
// Such a product takes a few milliseconds at most.
inline constexpr size_t kTokensAtOnce = 64;

// Immutable. As the kernels that were in use when it was made take it.
class PreparedBasis {
 public:
  // Asks the checkpoint, which may be null, every few milliseconds: when it
  // stops, the matrix may be anything.
  PreparedBasis(const ProfileGroup& group, Checkpoint* checkpoint);

  // Rows of the matrix: the channels, made even.
  size_t inner() const { return inner_; }
  // Without tiles: the panel of kPanel components that begins with one, its
  // rows in pairs; those that there are not are zeros.
  const int16_t* Panel(size_t begin) const { return &right_[begin * inner_]; }

  // Null without tiles.
  const kernels::TileKernels* kernels() const { return kernels_; }
  // With tiles: the whole matrix, as a ProjectTilesJob has it.
  const int8_t* tiles() const {
    return reinterpret_cast<const int8_t*>(right_.data());
  }
  kernels::InnerBlocks blocks() const { return blocks_; }
  size_t column_tiles() const { return column_tiles_; }

 private:
  void FillPanels(const ProfileGroup& group, Checkpoint* checkpoint);
  void FillTiles(const ProfileGroup& group, Checkpoint* checkpoint);

  const kernels::TileKernels* const kernels_;
  const size_t inner_;
  kernels::InnerBlocks blocks_;
  size_t column_tiles_ = 0;
  coding::Lines right_;  // panel after panel, or tiles
};

// The decoder's matrix of a group, in tiles: as TileKernels::restore takes it,
// the channels of each head in tiles of their own. Immutable.
class RestoringTiles {
 public:
  // Asks the checkpoint as PreparedBasis does.
  RestoringTiles(const ProfileGroup& group, Checkpoint* checkpoint);

  // What it takes of a group, in bytes; 0 where the kernels in use have none.
  static uint64_t Memory(const ProfileGroup& group);

  size_t inner_tiles() const { return inner_tiles_; }
  // Of a head; heads of all tensors are counted on.
  const int8_t* OfHead(size_t head) const {
    return reinterpret_cast<const int8_t*>(tiles_.data()) + begins_[head];
  }

 private:
  const size_t inner_tiles_;
  std::vector<size_t> begins_;
  coding::Lines tiles_;
};

// That of a group of a profile: made when it is first asked for, and kept as
// long as the profile, or a little longer. Thread safe. As the constructor has
// it when the checkpoint, which may be null, stops; then it is not kept.
std::shared_ptr<const PreparedBasis> PreparedBasisOf(
    const std::shared_ptr<const Profile>& profile, size_t group,
    Checkpoint* checkpoint);
std::shared_ptr<const RestoringTiles> RestoringTilesOf(
    const std::shared_ptr<const Profile>& profile, size_t group,
    Checkpoint* checkpoint);

}  // namespace kvcompress::profile

#endif  // KVCOMPRESS_PROFILE_PREPARED_BASIS_H_
