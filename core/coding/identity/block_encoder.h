// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Encodes one block of ecsq. The bytes depend on the input alone: no libm, and
// sums in a fixed order.

#ifndef KVCOMPRESS_CODING_IDENTITY_BLOCK_ENCODER_H_
#define KVCOMPRESS_CODING_IDENTITY_BLOCK_ENCODER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "coding/format.h"
#include "coding/geometry.h"
#include "kvcompress/codec.h"
#include "kvcompress/dtype.h"
#include "kvcompress/metrics.h"
#include "quantization/rope.h"

namespace kvcompress::coding {

// Writes the values to quantize of tokens [begin, end) of a head of a block:
// without rotation, divided by the norms, and zero where the encoder would
// rather store an exception.
using LoadRows = absl::FunctionRef<void(size_t head, size_t begin, size_t end,
                                        float* values)>;

struct BlockInput {
  LoadRows load;
  // The codes of the norms of each token of each head, or empty.
  absl::Span<const uint16_t> norms;
  // The source, little-endian; for sinks and exceptions.
  const uint8_t* source = nullptr;
};

struct BlockChoices {
  // Trade error against bits, instead of rounding to the nearest.
  bool rate_aware = false;
  // Largest error of an element before it is an exception; 0 for none.
  float max_error = 0;
};

// What the channels of a block look like, sinks left out; though they are
// loaded.
struct ChannelStatistics {
  std::vector<double> means;  // of each channel of each head
  std::vector<double> variances;
  double square_sum = 0;  // of what is left when the means are taken away
  uint64_t count = 0;
  double largest = 0;  // magnitude of a value
};
ChannelStatistics Measure(const TensorHeader& header, const Geometry& geometry,
                          const Block& block, LoadRows load,
                          EncoderBuffers* buffers);

// Appends the block to `*payload`, writes its decoded elements to `decoded`,
// and their distortion to `*sums`; with null for `decoded` neither, and there
// are no exceptions. False when it is larger than a block may be. Works in all
// buffers but `source` and `decoded`.
bool EncodeBlock(const TensorHeader& header, const Geometry& geometry,
                 const Block& block, const BlockChoices& choices, DType dtype,
                 const BlockInput& input, const ChannelStatistics& statistics,
                 Rotator* rotator, EncoderBuffers* buffers,
                 std::string* payload, uint8_t* decoded, DistortionSums* sums);

}  // namespace kvcompress::coding

#endif  // KVCOMPRESS_CODING_IDENTITY_BLOCK_ENCODER_H_
