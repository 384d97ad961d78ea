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
#include "coding/format.h"
#include "kernels/rows.h"
#include "quantization/rope.h"

namespace kvcompress::coding {

// 8-bit integers with one scale, a bfloat16: the sinks of a block, or a group
// of the fallback.
struct Int8Scale {
  // The least bfloat16 not below max |value| / 127.
  static uint16_t For(absl::Span<const float> values);
  static bool Valid(uint16_t bits) { return bits < 0x7f80; }
  // Rounded half away from zero, within -127 .. 127.
  static int8_t Quantize(float value, uint16_t bits);
  static float Dequantize(int8_t code, uint16_t bits);
};

// Everything a block holds but its quanta and its exceptions.
struct BlockContent {
  SideData side;
  // For each head and int8 sink, in this order: the scale, and a code for each
  // channel.
  std::vector<uint16_t> sink_scales;
  std::vector<int8_t> sink_codes;
};

// Makes the values of a block, part by part. REQUIRES: sizes fit the block, and
// numbers keep the limits of format.h; all but `rotator`, which is used at once
// and may be used by others until the last part is made, outlive this.
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
