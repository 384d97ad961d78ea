// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Encodes one block of ecsq. The bytes depend on the input alone: no libm, and
// sums in a fixed order.

#ifndef KVCOMPRESS_CODECS_ECSQ_BLOCK_ENCODER_H_
#define KVCOMPRESS_CODECS_ECSQ_BLOCK_ENCODER_H_

#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "codecs/ecsq/format.h"
#include "codecs/ecsq/geometry.h"
#include "kvcompress/dtype.h"

namespace kvcompress::ecsq {

struct BlockInput {
  // The values to quantize, in the order of the tensor: without rotation, and
  // zero where the encoder would rather patch.
  absl::Span<const float> values;
  // The source, little-endian; for sinks and patches.
  const uint8_t* source = nullptr;
};

struct BlockChoices {
  // Trade error against bits, instead of rounding to the nearest.
  bool rate_aware = false;
  // Largest error of an element before it is patched, and of a token's
  // elements before its norm is lowered; 0 for none.
  float patch_error = 0;
  float norm_error = 0;
};

// Sums over a block of what its channels leave when their means are taken away,
// sinks left out.
struct Spread {
  double square_sum = 0;
  uint64_t count = 0;
  double largest = 0;  // of the values themselves
};
Spread Measure(const TensorHeader& header, const Geometry& geometry,
               const Block& block, const BlockChoices& choices,
               const BlockInput& input);

// Appends the block to `*payload` and writes its decoded elements to `decoded`.
// False when it is larger than a block may be.
bool EncodeBlock(const TensorHeader& header, const Geometry& geometry,
                 const Block& block, const BlockChoices& choices, DType dtype,
                 const BlockInput& input, std::string* payload,
                 uint8_t* decoded);

// The code of a token's norm: its root mean square, to 3 bits after the point.
uint16_t NormCode(absl::Span<const float> values);

}  // namespace kvcompress::ecsq

#endif  // KVCOMPRESS_CODECS_ECSQ_BLOCK_ENCODER_H_
