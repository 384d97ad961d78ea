// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Encodes one block of klt, as often as the tensor's encoder tries a step.

#ifndef KVCOMPRESS_CODECS_KLT_BLOCK_ENCODER_H_
#define KVCOMPRESS_CODECS_KLT_BLOCK_ENCODER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "codecs/klt/basis.h"
#include "codecs/klt/format.h"
#include "codecs/klt/geometry.h"
#include "codecs/klt/loadings.h"
#include "kvcompress/dtype.h"

namespace kvcompress::klt {

struct BlockInput {
  // [heads, tokens, channels], without rotation, and zero where the encoder
  // would rather patch.
  std::vector<float> values;
  // The source of these, little-endian; for sinks and patches.
  std::vector<uint8_t> source;
};

// The bases of the groups of a run of blocks.
struct Bases {
  std::vector<Reflectors> reflectors;
  std::vector<Matrix> matrices;
  std::vector<Matrix> transposed;
};

// Not thread safe. What it is made from must outlive it.
class BlockEncoder {
 public:
  // Finds means and norms: what does not depend on the step. `offsets` has one
  // for each token of the block. An error of an element beyond `patch_error` is
  // patched; none where that is 0.
  BlockEncoder(const TensorHeader& header, const Geometry& geometry,
               const Block& block, float patch_error, DType dtype,
               BlockInput input, absl::Span<const int8_t> offsets);

  // Sums of what channels leave when their means are taken away, over tokens
  // that are not sinks and have steps of no more than the usual size.
  double square_sum() const { return square_sum_; }
  uint64_t square_count() const { return square_count_; }
  double largest() const { return largest_; }  // of the values themselves
  // Sum over tokens and heads of the squares of their norms.
  double norm_square_sum() const { return norm_square_sum_; }

  // Adds the tokens that these sums are over to that of a group.
  void AddTo(size_t group, Covariance* covariance) const;

  // Quantizes with the step of the header in `bases`, and writes the decoded
  // elements, [heads, tokens, channels], to `decoded`.
  void Quantize(const Bases& bases, uint8_t* decoded);

  // Appends what was quantized last to `*payload`, with the bases or, where
  // they are those of the block before, without. False when it is larger than a
  // block may be.
  bool Write(const Bases& bases, bool same_bases, std::string* payload) const;

 private:
  size_t PositionOf(size_t channel, size_t token) const {
    return (channel / channels_ * block_.tokens + token) * channels_ +
           channel % channels_;
  }
  // Whether the token takes no part in statistics.
  bool IsOutside(size_t token) const;

  // visit(begin, end) for each run of tokens that do.
  template <typename Visit>
  void ForEachRunInside(Visit visit) const;

  void Normalize();
  void MeasureChannels();
  void SetMeans();
  // Copies the values of a group's channels at a token.
  void CopyToken(size_t group, size_t token, float* x) const;
  // Gives the coefficients of a group, [tokens, directions], and adds to the
  // variances of the block's directions.
  void Transform(size_t group, const Matrix& matrix, const Matrix& transposed,
                 float* coefficients, double* variances) const;
  void EncodeSinks();

  const TensorHeader& header_;
  const Geometry& geometry_;
  const Block block_;
  const float patch_error_;
  const DType dtype_;
  std::vector<uint8_t> source_;
  const size_t channels_;      // of a head
  const size_t all_channels_;  // of all heads
  const size_t sinks_;
  std::vector<float> values_;  // divided by norms
  std::vector<double> means_;
  double square_sum_ = 0;
  uint64_t square_count_ = 0;
  double largest_ = 0;
  double norm_square_sum_ = 0;
  BlockContent content_;
  std::string patches_;
};

}  // namespace kvcompress::klt

#endif  // KVCOMPRESS_CODECS_KLT_BLOCK_ENCODER_H_
