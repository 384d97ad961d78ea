// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// How fine each token's steps are: what is likely to get more attention gets
// finer ones. The encoder's affair; a decoder reads the offsets.

#ifndef KVCOMPRESS_CODECS_KLT_WEIGHTS_H_
#define KVCOMPRESS_CODECS_KLT_WEIGHTS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "codecs/klt/geometry.h"
#include "codecs/klt/preset.h"

namespace kvcompress::klt {

// How much attention each token of the keys `values`, [heads, tokens,
// channels] and without rotation, is likely to get beyond what its age tells,
// in octaves from -2 to 2: tokens against the mean are looked at more.
std::vector<float> KeyWeights(const Geometry& geometry,
                              absl::Span<const float> values);

// The attention that tokens are likely to get, in octaves: what their age
// tells, and these weights, or none.
std::vector<float> AttentionOf(size_t tokens, absl::Span<const float> weights);

// Offsets in quarter octaves of tokens that are likely to get this attention.
// Steps follow it as strongly as the preset says.
std::vector<int8_t> OffsetsOf(const Preset& preset,
                              absl::Span<const float> attention);

}  // namespace kvcompress::klt

#endif  // KVCOMPRESS_CODECS_KLT_WEIGHTS_H_
