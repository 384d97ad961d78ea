// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// From what a block holds to its values: the arithmetic that the decoder and
// the encoder's own check share. Integers up to one conversion to binary32;
// then IEEE 754, nearest even, no contraction. Specified in core/FORMAT.md,
// "klt".

#ifndef KVCOMPRESS_CODECS_KLT_RECONSTRUCT_H_
#define KVCOMPRESS_CODECS_KLT_RECONSTRUCT_H_

#include "absl/types/span.h"
#include "codecs/klt/basis.h"
#include "codecs/klt/format.h"
#include "codecs/klt/geometry.h"

namespace kvcompress::klt {

// Writes the values of the block, [heads, tokens, channels], before they are
// rounded to the source's type. `bases` has one for each group. REQUIRES: sizes
// fit the block, and numbers keep the limits of the format.
void Reconstruct(const TensorHeader& header, const Geometry& geometry,
                 const Block& block, const BlockContent& content,
                 absl::Span<const Matrix> bases, absl::Span<float> values);

}  // namespace kvcompress::klt

#endif  // KVCOMPRESS_CODECS_KLT_RECONSTRUCT_H_
