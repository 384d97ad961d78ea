// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Encodes one block of klt, as often as the tensor's encoder tries a step.

#ifndef KVCOMPRESS_CODECS_KLT_BLOCK_ENCODER_H_
#define KVCOMPRESS_CODECS_KLT_BLOCK_ENCODER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
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

struct BlockChoices {
  // Most basis vectors of a group.
  size_t vectors = 0;
  // Largest error of an element before it is patched; 0 for none.
  float patch_error = 0;
};

// Not thread safe. What it is made from must outlive it.
class BlockEncoder {
 public:
  // Finds means, norms and basis: what does not depend on the step.
  // `offsets` has one for each token of the block.
  BlockEncoder(const TensorHeader& header, const Geometry& geometry,
               const Block& block, const BlockChoices& choices, DType dtype,
               BlockInput input, absl::Span<const int8_t> offsets);

  // Sums of what channels leave when their means are taken away, over tokens
  // that are not sinks and have steps of no more than the usual size.
  double square_sum() const { return square_sum_; }
  uint64_t square_count() const { return square_count_; }
  double largest() const { return largest_; }  // of the values themselves
  // Sum over tokens and heads of the squares of their norms.
  double norm_square_sum() const { return norm_square_sum_; }

  // Appends the block, coded with the step of the header, to `*payload`, and
  // writes its decoded elements, [heads, tokens, channels], to `decoded`. False
  // when it is larger than a block may be.
  bool Encode(std::string* payload, uint8_t* decoded);

 private:
  size_t PositionOf(size_t channel, size_t token) const {
    return (channel / channels_ * block_.tokens + token) * channels_ +
           channel % channels_;
  }
  // Whether the token takes no part in statistics.
  bool IsOutside(size_t token) const;

  void Normalize();
  void MeasureChannels();
  void FindBases();
  void SetMeans();
  void Transform(size_t group);
  void Quantize(size_t channel);
  int32_t Cheaper(float exact, int32_t nearest, int klass) const;
  int BestClass(size_t channel, int klass) const;
  void EncodeSinks();
  bool Write(std::string* payload, uint8_t* decoded);

  const TensorHeader& header_;
  const Geometry& geometry_;
  const Block block_;
  const BlockChoices choices_;
  const DType dtype_;
  const BlockInput input_;
  const size_t channels_;      // of a head
  const size_t all_channels_;  // of all heads
  const size_t lanes_;
  const size_t sinks_;
  std::vector<float> values_;  // divided by norms
  std::vector<double> means_;
  double square_sum_ = 0;
  uint64_t square_count_ = 0;
  double largest_ = 0;
  double norm_square_sum_ = 0;
  std::vector<Loadings> loadings_;   // of each group
  std::vector<float> coefficients_;  // as BlockContent::quanta
  std::vector<double> variances_;    // of each coefficient
  BlockContent content_;
};

}  // namespace kvcompress::klt

#endif  // KVCOMPRESS_CODECS_KLT_BLOCK_ENCODER_H_
