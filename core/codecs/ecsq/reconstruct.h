// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// From what a block holds to its values: the arithmetic that the decoder and
// the encoder's own check share. IEEE 754 binary32, nearest even, no
// contraction, subnormals kept. Specified in core/FORMAT.md, "ecsq".

#ifndef KVCOMPRESS_CODECS_ECSQ_RECONSTRUCT_H_
#define KVCOMPRESS_CODECS_ECSQ_RECONSTRUCT_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "codecs/ecsq/format.h"
#include "codecs/ecsq/rope.h"

namespace kvcompress::ecsq {

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

// Everything a block holds but its patches.
struct BlockContent {
  SideData side;
  // In the order of the tensor; those of int8 sinks are not used.
  std::unique_ptr<int32_t[]> quanta;
  // For each head and int8 sink, in this order: the scale, and a code for each
  // channel.
  std::vector<uint16_t> sink_scales;
  std::vector<int8_t> sink_codes;
};

// Writes the values of the block, in the order of the tensor and before they
// are rounded to the source's type. REQUIRES: sizes fit the block, and numbers
// keep the limits of format.h.
void Reconstruct(const TensorHeader& header, const Geometry& geometry,
                 const Block& block, const BlockContent& content,
                 Rotator* rotator, float* values);

}  // namespace kvcompress::ecsq

#endif  // KVCOMPRESS_CODECS_ECSQ_RECONSTRUCT_H_
