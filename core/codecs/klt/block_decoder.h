// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Decodes one block of klt. Specified in core/FORMAT.md, "klt".

#ifndef KVCOMPRESS_CODECS_KLT_BLOCK_DECODER_H_
#define KVCOMPRESS_CODECS_KLT_BLOCK_DECODER_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "codecs/klt/format.h"
#include "codecs/klt/geometry.h"
#include "codecs/klt/reconstruct.h"
#include "kvcompress/dtype.h"
#include "transform/basis.h"

namespace kvcompress::klt {

// What one block after the other is decoded in.
struct DecoderMemory {
  std::vector<int32_t> levels;  // of a group, or of all that share strips
  std::vector<int8_t> symbols;
  ReconstructorMemory reconstructor;
};

// Decodes `bytes`, which are not trusted, to the elements of `block`, heads
// of [tokens, channels], `head_stride` elements apart at `out`, or only its
// bases when `out` is null. `bases` has those of the groups of the block before
// it in its part of the heads, none for the first, and takes those of this one.
// Memory and time are bounded by the block. False when a rule of the format is
// broken; `out` and `bases` are then unspecified. REQUIRES: bytes has the size
// that its BlockHeader, already accepted, states.
bool DecodeBlock(const TensorHeader& header, const Geometry& geometry,
                 const Block& block, DType dtype,
                 absl::Span<const uint8_t> bytes,
                 std::vector<coding::Matrix>* bases, DecoderMemory* memory,
                 size_t head_stride, uint8_t* out);

}  // namespace kvcompress::klt

#endif  // KVCOMPRESS_CODECS_KLT_BLOCK_DECODER_H_
