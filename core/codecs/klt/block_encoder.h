// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Encodes one block of klt, as often as the tensor's encoder tries a step.
//
// Does not store values; recomputes them from the source, group by group, each
// time. Keeps levels, one byte each, as a block is written only when the last
// has been quantized.

#ifndef KVCOMPRESS_CODECS_KLT_BLOCK_ENCODER_H_
#define KVCOMPRESS_CODECS_KLT_BLOCK_ENCODER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "codecs/klt/format.h"
#include "codecs/klt/geometry.h"
#include "codecs/klt/packed_levels.h"
#include "codecs/klt/reconstruct.h"
#include "coding/format.h"
#include "coding/identity/source_rows.h"
#include "kvcompress/checkpoint.h"
#include "kvcompress/codec.h"
#include "kvcompress/dtype.h"
#include "kvcompress/metrics.h"
#include "tensor/whole_tensor.h"
#include "transform/basis.h"
#include "transform/loadings.h"

namespace kvcompress::klt {

// A block within its tensor: heads of [tokens, channels].
struct BlockSource {
  // Makes its values: without rotation, and zero where the encoder would rather
  // store an exception.
  coding::SourceRows* rows = nullptr;
  // The source of these, little-endian; for sinks and exceptions.
  const uint8_t* source = nullptr;
  size_t head_stride = 0;  // elements from one head to the next
};

// The bases of the groups of a run of blocks.
struct Bases {
  std::vector<coding::Reflectors> reflectors;
  std::vector<coding::Matrix> matrices;
  std::vector<coding::Matrix> transposed;  // matrices
};

// What one block after the other is quantized and written in, and what ends
// that. Both pointers are null or outlive it.
struct EncoderMemory {
  explicit EncoderMemory(Checkpoint* its_checkpoint)
      : EncoderMemory(nullptr, its_checkpoint) {}
  EncoderMemory(EncoderBuffers* buffers, Checkpoint* its_checkpoint)
      : checkpoint(its_checkpoint),
        values(buffers, &EncoderBuffers::values),
        levels(buffers, &EncoderBuffers::quanta),
        symbols(buffers, &EncoderBuffers::symbols),
        words(buffers, &EncoderBuffers::words) {}

  Checkpoint* const checkpoint;

  Borrowed<std::vector<float>> values;    // of a group
  Borrowed<std::vector<int32_t>> levels;  // of a group or, to write, of a block
  std::vector<float> coefficients;        // of a group
  std::vector<int16_t> parts;
  std::vector<int32_t> sums;
  coding::Rotator rotator;
  Borrowed<std::vector<uint16_t>> symbols;
  Borrowed<std::vector<uint16_t>> words;
};

// Not thread safe. What it is made from must outlive it.
class BlockEncoder {
 public:
  // `offsets` has one for each token of the block. An element that is off by
  // more than `max_error` is an exception; none where that is 0.
  BlockEncoder(const coding::TensorHeader& header, const Geometry& geometry,
               const Block& block, float max_error, DType dtype,
               BlockSource input, absl::Span<const int8_t> offsets);

  // Finds means and norms of a group: what does not depend on the step. Adds
  // the tokens that the sums below are over to `*covariance`. Each group comes
  // once, any of them at the same time, before FinishMeasuring and anything
  // else that is asked for.
  void Measure(size_t group, EncoderMemory* memory,
               coding::Covariance* covariance);
  void FinishMeasuring();

  // The same of one token in `stride`, to be tried instead of all, and not
  // written; the source is what is left without rotation. `header` has neither
  // rotation nor sinks, and must outlive it. REQUIRES: stride <= tokens.
  BlockEncoder Sample(const coding::TensorHeader& header, size_t stride,
                      coding::Rotator* rotator) const;

  const Block& block() const { return block_; }

  // Sums of what channels leave when their means are taken away, over tokens
  // that are not sinks and have steps of no more than the usual size.
  double square_sum() const { return square_sum_; }
  uint64_t square_count() const { return square_count_; }
  double largest() const { return largest_; }  // of the values themselves
  // Sum over tokens and heads of the squares of their norms.
  double norm_square_sum() const { return norm_square_sum_; }

  // Quantizes with the step of the header in `bases`, writes the decoded
  // elements to `decoded`, laid out as the source is, and returns the
  // distortion of the heads; of a part of them when the checkpoint stops.
  std::vector<DistortionSums> Quantize(const Bases& bases,
                                       EncoderMemory* memory, uint8_t* decoded);

  // Appends what was quantized last to `*payload`, with the bases or, where
  // they are those of the block before, without. False when it is larger than a
  // block may be.
  bool Write(const Bases& bases, bool same_bases, EncoderMemory* memory,
             std::string* payload) const;

 private:
  // Of some tokens of a block that is measured already.
  BlockEncoder(const BlockEncoder& whole, const coding::TensorHeader& header,
               const Block& block);

  // Where the channels of a head begin among the values of a group that has the
  // `channel`, which is counted from its first.
  size_t PositionOf(size_t channel, size_t token) const {
    return channel / channels_ * block_.tokens * channels_ + token * channels_ +
           channel % channels_;
  }
  // Whether this is to be tried, and not to be written.
  bool is_sample() const { return !sample_values_.empty(); }
  // Whether the token takes no part in statistics.
  bool IsOutside(size_t token) const;

  // visit(begin, end) for each run of tokens that do.
  template <typename Visit>
  void ForEachRunInside(Visit visit) const;

  // Returns the values of a group, heads of [tokens, channels], divided by the
  // norms: of a sample those that it has, else in memory.
  const float* LoadGroup(size_t group, EncoderMemory* memory) const;
  // Divides tokens from `token` on of a head by their norms, which are known.
  void Normalize(size_t head, size_t token, size_t count, float* values) const;
  void FindNorms(size_t head, size_t token, size_t count, const float* values);
  // Measures the channels of a head.
  void MeasureHead(size_t head, const float* values);
  void AddTo(size_t group, const float* values,
             coding::Covariance* covariance) const;
  // Computes the coefficients of a group, [tokens, components], in memory, and
  // adds to the variances of the block's components.
  void Transform(size_t group, const float* values,
                 const coding::Matrix& matrix, const coding::Matrix& transposed,
                 EncoderMemory* memory, double* variances) const;
  // Those of a token whose integers need more bits.
  void TransformWide(const float* values, size_t token,
                     const coding::Matrix& matrix, const float* means,
                     float* coefficients) const;

  const coding::TensorHeader& header_;
  const Geometry& geometry_;
  const Block block_;
  const float max_error_;
  const DType dtype_;
  BlockSource input_;
  std::vector<float> sample_values_;  // [heads, tokens, channels]
  std::vector<uint8_t> sample_source_;
  const size_t channels_;      // of a head
  const size_t all_channels_;  // of all heads
  const size_t sinks_;
  std::vector<double> means_;
  std::vector<double> squares_;  // what the mean of each channel leaves
  std::vector<double> most_;     // its largest magnitude, or more
  std::vector<double> largest_of_groups_;
  double square_sum_ = 0;
  uint64_t square_count_ = 0;
  double largest_ = 0;
  double norm_square_sum_ = 0;
  BlockContent content_;
  std::vector<PackedLevels> levels_;  // of the groups; none of a sample
  std::string exceptions_;
};

}  // namespace kvcompress::klt

#endif  // KVCOMPRESS_CODECS_KLT_BLOCK_ENCODER_H_
