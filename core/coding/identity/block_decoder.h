// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Decodes one block of ecsq. Specified in core/FORMAT.md, "ecsq".

#ifndef KVCOMPRESS_CODING_IDENTITY_BLOCK_DECODER_H_
#define KVCOMPRESS_CODING_IDENTITY_BLOCK_DECODER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "coding/format.h"
#include "coding/geometry.h"
#include "kvcompress/dtype.h"
#include "quantization/rope.h"

namespace kvcompress::coding {

// What the blocks of a tensor are decoded in, one after the other; what is in
// it means nothing.
struct DecoderBuffers {
  std::vector<int8_t> symbols;
  std::vector<int32_t> quanta;  // where there are low bits
};

// The most bytes that they take for blocks no larger than `block`.
uint64_t BuffersSize(const Geometry& geometry, const Block& block);

// Decodes `bytes`, which are not trusted, and appends the elements of `block`.
// Memory is bounded by the block. False when a rule of the format is broken;
// what was appended is then unspecified. REQUIRES: bytes has the size that its
// BlockHeader, already accepted, states; geometry.codable().
bool DecodeBlock(const TensorHeader& header, const Geometry& geometry,
                 const Block& block, DType dtype,
                 absl::Span<const uint8_t> bytes, Rotator* rotator,
                 DecoderBuffers* buffers, std::string* decoded);

}  // namespace kvcompress::coding

#endif  // KVCOMPRESS_CODING_IDENTITY_BLOCK_DECODER_H_
