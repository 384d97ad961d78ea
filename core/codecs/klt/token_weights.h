// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// How fine a tensor's steps are, and each token's: what an answer depends on
// more gets finer ones. For encoders only; a decoder reads step and offsets.

#ifndef KVCOMPRESS_CODECS_KLT_TOKEN_WEIGHTS_H_
#define KVCOMPRESS_CODECS_KLT_TOKEN_WEIGHTS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "codecs/klt/geometry.h"
#include "codecs/klt/preset.h"
#include "kvcompress/checkpoint.h"
#include "kvcompress/codec.h"

// All results are unspecified when the checkpoint stops.
namespace kvcompress::klt {

// Writes the values of tokens [begin, end) of a head, [tokens, channels],
// without rotation.
using LoadTokens = absl::FunctionRef<void(size_t head, size_t begin, size_t end,
                                          float* values)>;

// What keys show, which are loaded twice.
//
// Their attention is how much each token is likely to get beyond what its age
// predicts, in octaves from -2 to 2: tokens against the mean get more of it.
//
// Their sharpness is log2 of the mean fourth power of what the means over
// tokens leave. An error in keys harms most where attention picks few tokens,
// and it does where logits spread far: as training keeps the matrices of
// queries and keys in balance, queries are large where keys are, and logits
// grow with the square of both. Channels that are larger than the others, which
// the fourth power sees beyond the variance, count for more.
//
// Nothing of tensors of at most 4 tokens.
KeyHints AnalyzeKeys(const Geometry& geometry, LoadTokens load,
                     Checkpoint* checkpoint = nullptr);

// Returns the factor for the steps of keys of this sharpness, at most 1. Steps
// follow the sharpness as strongly as the preset says; beyond 6 a quarter as
// strongly.
double SharpnessFactor(const Preset& preset, std::optional<double> sharpness);

// The attention that tokens are likely to get, in octaves: what their age
// predicts, and these weights, or none.
std::vector<float> AttentionOf(size_t tokens, absl::Span<const float> weights,
                               Checkpoint* checkpoint = nullptr);

// Offsets in quarter octaves of tokens that are likely to get this attention.
// Steps follow it as strongly as the preset says.
std::vector<int8_t> OffsetsOf(const Preset& preset,
                              absl::Span<const float> attention,
                              Checkpoint* checkpoint = nullptr);

}  // namespace kvcompress::klt

#endif  // KVCOMPRESS_CODECS_KLT_TOKEN_WEIGHTS_H_
