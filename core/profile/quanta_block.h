// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The quanta of some tokens of a group, as products with a matrix take them.
// Internal to the library.

#ifndef KVCOMPRESS_PROFILE_QUANTA_BLOCK_H_
#define KVCOMPRESS_PROFILE_QUANTA_BLOCK_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "kernels/joint.h"
#include "kernels/tiles.h"
#include "profile/block_reader.h"
#include "transform/basis.h"

namespace kvcompress::profile {

// Quanta of a token that are not 0, and where they are.
class TokenQuanta {
 public:
  TokenQuanta(absl::Span<const uint16_t> components, const int16_t* quanta,
              bool narrow)
      : components_(components), quanta_(quanta), narrow_(narrow) {}

  size_t size() const { return components_.size(); }
  uint16_t component(size_t k) const { return components_[k]; }
  int32_t quantum(size_t k) const;

  // Whether 16-bit products with 32-bit sums suffice. Then it can be had as
  // kernels take it; there may be zeros at its end.
  bool narrow() const { return narrow_; }
  kernels::SparseToken ForKernels() const {
    return {components_.data(), quanta_, components_.size(), unit_};
  }

  // The step of the token, once it is set.
  float unit() const { return unit_; }
  void set_unit(float unit) { unit_ = unit; }

 private:
  absl::Span<const uint16_t> components_;
  const int16_t* quanta_;  // where not narrow, two for each
  float unit_ = 0;
  bool narrow_;
};

// Thread safe once made.
class QuantaBlock {
 public:
  // Adds a token by its levels that are not 0.
  void Append(absl::Span<const BlockReader::Level> levels);
  // Once all are added, of so many components: makes rows of the first ones,
  // where most of them are not 0 and that is faster.
  void MakeDense(size_t components);

  // Instead of both: takes the block that was read, of so many tokens, to
  // tiles. At() then has tokens that are not narrow.
  void TakeTiles(const kernels::TileKernels& kernels, BlockReader* reader,
                 size_t tokens);
  // Whether that was done.
  bool has_tiles() const { return !low_.empty(); }
  bool all_narrow() const { return all_narrow_; }
  kernels::LeftTiles low() const { return low_.Left(); }
  kernels::LeftTiles high() const { return high_.Left(); }

  size_t tokens() const { return narrow_.size(); }
  // All components are below it.
  size_t components_end() const { return components_end_; }

  // Those of a token that its row does not have.
  TokenQuanta At(size_t token) const;
  // The first inner() components of a token, and those of the tokens after it;
  // zeros where a token is not narrow.
  const int16_t* RowAt(size_t token) const {
    return dense_.data() + token * inner_;
  }
  size_t inner() const { return inner_; }  // even

 private:
  // Left tiles of all tokens; see kernels::LeftTiles.
  class Tiles {
   public:
    void Resize(size_t row_tiles, size_t inner_tiles);

    size_t inner() const { return inner_; }
    bool empty() const { return masks_.empty(); }
    int8_t* tiles() { return reinterpret_cast<int8_t*>(tiles_.data()); }
    uint64_t (*masks())[kernels::kMaskWords] { return &masks_.front().words; }
    kernels::LeftTiles Left() const {
      return {.tiles = reinterpret_cast<const int8_t*>(tiles_.data()),
              .inner_tiles = inner_,
              .masks = empty() ? nullptr : &masks_.front().words};
    }

    // Symbol kTileSymbols * run of a token, and those after it.
    int8_t* At(size_t token, size_t run);
    // Marks the tile there as used.
    void Use(size_t token, size_t run);
    // All symbols of a token become 0.
    void Clear(size_t token);

   private:
    struct Mask {
      uint64_t words[kernels::kMaskWords] = {};
    };
    coding::Lines tiles_;
    size_t inner_ = 0;
    std::vector<Mask> masks_;
  };

  // A run of levels of all tokens, kTileSymbols of each, where not all need be
  // bytes; adds their magnitudes to `sums`, which saturate, and sets what of
  // `any` is not 0 throughout.
  void TakeWide(const int32_t* levels, size_t tokens, size_t run,
                uint32_t* sums, uint8_t* any);

  void Append(absl::Span<const BlockReader::Level> levels, bool narrow);
  // So many first components that it pays to have them as rows.
  size_t DenseComponents(size_t components) const;

  // Where a token begins in the following two.
  struct Place {
    uint64_t component = 0;
    uint64_t quantum = 0;
  };
  std::vector<Place> places_ = {Place()};  // of each token and of the end
  std::vector<uint16_t> components_;
  std::vector<int16_t> quanta_;
  std::vector<bool> narrow_;  // of each token
  size_t components_end_ = 0;
  Tiles low_;
  Tiles high_;
  bool all_narrow_ = true;      // of tokens in tiles
  std::vector<int16_t> dense_;  // [tokens, inner]
  size_t inner_ = 0;
};

}  // namespace kvcompress::profile

#endif  // KVCOMPRESS_PROFILE_QUANTA_BLOCK_H_
