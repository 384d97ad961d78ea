// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// From what a block holds to its elements: the arithmetic that the decoder and
// the encoder's own check share. Integers up to one conversion to binary32;
// then IEEE 754, nearest even, no contraction. Specified in core/FORMAT.md,
// "klt".

#ifndef KVCOMPRESS_CODECS_KLT_RECONSTRUCT_H_
#define KVCOMPRESS_CODECS_KLT_RECONSTRUCT_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "codecs/klt/format.h"
#include "codecs/klt/geometry.h"
#include "coding/format.h"
#include "kvcompress/dtype.h"
#include "quantization/rope.h"
#include "transform/basis.h"

namespace kvcompress::klt {

// Of one block. Not thread safe. What it is made from must outlive it.
class GroupReconstructor {
 public:
  // `content` needs means, norms and offsets by now. Elements, before
  // exceptions, are written to `out`: heads of [tokens, channels],
  // `head_stride` elements apart.
  GroupReconstructor(const coding::TensorHeader& header,
                     const Geometry& geometry, const Block& block,
                     const BlockContent& content, coding::Rotator* rotator,
                     DType dtype, size_t head_stride, uint8_t* out);

  // Writes the tokens of a group that are not sinks. `levels` is [tokens,
  // components]. REQUIRES: sizes fit the block, and levels keep the limits of
  // the format.
  void PutGroup(size_t group, const coding::Matrix& matrix,
                const int32_t* levels);

  // Writes the sinks, which `content` must have by now.
  void PutSinks();

 private:
  uint8_t* ElementsAt(size_t head, size_t token) const {
    return out_ + head * head_size_ + token * row_size_;
  }
  // Writes the values of a token of a head, whose channels begin at
  // `first_channel` of the group, from levels whose sums need 64 bits.
  void PutWide(const coding::Matrix& matrix, const int32_t* levels,
               size_t first_channel, size_t head, size_t token,
               float* values) const;

  const coding::TensorHeader& header_;
  const Geometry& geometry_;
  const Block& block_;
  const BlockContent& content_;
  coding::Rotator& rotator_;
  const DType dtype_;
  uint8_t* const out_;
  const size_t channels_;   // of a head
  const size_t row_size_;   // bytes of a token of a head
  const size_t head_size_;  // from one head to the next
  const size_t sinks_;
  std::vector<float> units_;  // of each token
  std::vector<float> means_;  // of each channel
  std::vector<float> norms_;  // of each token of each head, or empty
  // Of the tokens that are multiplied together.
  std::vector<int16_t> narrow_;
  std::vector<int32_t> sums_;
  std::vector<float> values_;
};

}  // namespace kvcompress::klt

#endif  // KVCOMPRESS_CODECS_KLT_RECONSTRUCT_H_
