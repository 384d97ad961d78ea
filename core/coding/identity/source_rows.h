// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The values of a tensor as they are quantized: without outliers, without
// rotation and divided by norms. They are made from the source each time that
// they are looked at, which is faster than to keep them all, and takes a tile
// instead of twice a tensor of 16 bits a value.

#ifndef KVCOMPRESS_CODING_IDENTITY_SOURCE_ROWS_H_
#define KVCOMPRESS_CODING_IDENTITY_SOURCE_ROWS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "coding/format.h"
#include "coding/geometry.h"
#include "kvcompress/checkpoint.h"
#include "kvcompress/dtype.h"
#include "quantization/norms.h"
#include "quantization/rope.h"

namespace kvcompress::coding {

// Used in this order:
//
//   1. HideOutliers and FindRotation, if the tensor is to have them.
//   2. OfBlock for each block: finds the norms. Then KeepNorms.
//   3. For each step that is tried, AddNormBounds and then, for each block,
//      BoundNorms, if norms are to be bounded; OfBlock as often as need be.
//
// Blocks may be loaded and bounded by several threads, each with a rotator of
// its own. Else not thread safe.
class SourceRows {
 public:
  // Of the header, rotation, norms and shifts count; each as it is when values
  // are made. All must outlive this.
  SourceRows(const TensorHeader& header, const Geometry& geometry, DType dtype,
             const uint8_t* source)
      : header_(header), geometry_(geometry), dtype_(dtype), source_(source) {}

  // Elements as they are, from `first` on.
  void LoadSource(size_t first, absl::Span<float> values) const;

  // The sum of the squares of the first `elements`, in lanes as
  // kernels::SumSquares.
  double SumSquares(size_t elements, Checkpoint* checkpoint) const;

  // From now on, makes outliers zero, if they are rare. `largest` is the
  // largest magnitude of the `elements`.
  void HideOutliers(float largest, size_t elements, Checkpoint* checkpoint);

  // What the rotation of the keys most likely is: see DetectRotation.
  // `*likelier` becomes what LikelierBase returns.
  std::optional<FoundRotation> FindRotation(
      const RotationCandidates& candidates, std::optional<double>* likelier,
      Checkpoint* checkpoint) const;

  // The rows of one block.
  class OfBlock {
   public:
    // All outlive this, and nobody else uses the rotator meanwhile.
    OfBlock(SourceRows* rows, const Block& block, Rotator* rotator);
    // Tokens [begin, end) of a head. REQUIRES: MakeRoomForNorms, where there
    // are any.
    void operator()(size_t head, size_t begin, size_t end, float* values) const;
    // The same, not divided by norms: of blocks in any order, cut in any way.
    void LoadUnscaled(size_t head, size_t begin, size_t end,
                      float* values) const;

   private:
    SourceRows& rows_;
    const Block& block_;
    const float* rotation_table_ = nullptr;
  };

  void MakeRoomForNorms();
  // All blocks were loaded: their norms are known from now on.
  void KeepNorms() { norms_known_ = true; }

  // Lowers the norms of tokens whose elements could otherwise be more than
  // kNormError off with the header's step. Once for each step that is tried,
  // before OfBlock is used with it.
  void AddNormBounds(Checkpoint* checkpoint);
  // Brings the norms of a block up to date. Whether one has changed.
  bool BoundNorms(const Block& block, size_t first);

  // The codes of the norms, of each token of each head: as they are, and
  // bounded.
  absl::Span<const uint16_t> full_norms() const { return full_norms_; }
  absl::Span<const uint16_t> norms() const {
    return bounds_.empty() ? full_norms_ : norms_;
  }

 private:
  // The largest codes of norms, by how often the step is halved.
  using NormBounds = std::array<uint16_t, kMaxShift + 1>;

  void LoadWithoutOutliers(size_t first, absl::Span<float> values) const;
  void Normalize(size_t row, size_t count, uint64_t token, float* values);
  void FindNorms(size_t row, absl::Span<const float> values);
  // Whether a bound was ever below one of these norms.
  bool AnyBounded(size_t row, size_t count) const;
  uint16_t Bounded(size_t row, uint64_t token, const NormBounds& bounds) const;

  const TensorHeader& header_;
  const Geometry& geometry_;
  const DType dtype_;
  const uint8_t* const source_;
  bool hides_outliers_ = false;
  bool norms_known_ = false;
  std::vector<uint16_t> full_norms_;
  std::vector<float> inverses_;     // of those norms
  std::vector<NormBounds> bounds_;  // of each step that was tried
  uint16_t least_bound_ = kNormEnd;
  std::vector<uint16_t> norms_;  // with the last of these
};

// An element of a token is at most so far off.
inline constexpr float kNormError = 0.455f;

}  // namespace kvcompress::coding

#endif  // KVCOMPRESS_CODING_IDENTITY_SOURCE_ROWS_H_
