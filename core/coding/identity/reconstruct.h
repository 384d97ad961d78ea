// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// From what a block holds to its values: the arithmetic that the decoder and
// the encoder's own check share. IEEE 754 binary32, nearest even, no
// contraction, subnormals kept. Specified in core/FORMAT.md, "ecsq".

#ifndef KVCOMPRESS_CODING_IDENTITY_RECONSTRUCT_H_
#define KVCOMPRESS_CODING_IDENTITY_RECONSTRUCT_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "coding/block_content.h"
#include "coding/format.h"
#include "coding/geometry.h"
#include "coding/identity/runs.h"
#include "kernels/rows.h"
#include "quantization/rope.h"

namespace kvcompress::coding {

// Makes the values of a block, part by part. REQUIRES: sizes fit the block, and
// values keep the limits of the format; all but `rotator`, which is used at
// once and may be used by others until the last part is made, outlive this.
class Reconstructor {
 public:
  Reconstructor(const TensorHeader& header, const Geometry& geometry,
                const Block& block, const BlockContent& content,
                Rotator* rotator);

  // Dequantizes tokens [begin, end) of the head, all of one shift: fills their
  // rows, at `values`.
  using Dequantize = absl::FunctionRef<void(size_t begin, size_t end,
                                            const kernels::DequantizeStep& step,
                                            float* values)>;

  // The values of tokens [begin, end) of a head, before they are rounded to the
  // source's type. Asks for all but int8 sinks.
  void Restore(size_t head, size_t begin, size_t end, Dequantize dequantize,
               float* values) const;

 private:
  const TensorHeader& header_;
  const Block& block_;
  const BlockContent& content_;
  const size_t channels_;
  const size_t sinks_;  // that are integers
  const std::vector<Run> runs_;
  std::vector<float> norms_;
  const float* rotation_table_ = nullptr;  // of the block's tokens
};

}  // namespace kvcompress::coding

#endif  // KVCOMPRESS_CODING_IDENTITY_RECONSTRUCT_H_
