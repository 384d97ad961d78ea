// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Whether the text of a cache repeats itself, as its keys or values show. For
// encoders only.

#ifndef KVCOMPRESS_CODECS_KLT_REPEATS_H_
#define KVCOMPRESS_CODECS_KLT_REPEATS_H_

#include "codecs/klt/geometry.h"
#include "codecs/klt/preset.h"
#include "codecs/klt/token_weights.h"
#include "kvcompress/checkpoint.h"
#include "kvcompress/tensor.h"

namespace kvcompress::klt {

// Returns how strongly the cache repeats itself, from 0 to 1. The function
// samples at most 64 runs of 7 tokens, from up to four heads and the newest
// 2^15 tokens. It compares four tokens of each run with earlier runs of the
// same head, without the means of the channels. The result grows from 0 to 1
// while the share of repeating runs grows from 0.02 to 0.2. Unspecified if the
// checkpoint stops.
double Repetition(const Geometry& geometry, LoadTokens load,
                  Checkpoint* checkpoint = nullptr);

// The preset for such a cache: values have steps of no more than 1, and keys
// follow the sharpness of their layer up to twice as strongly, as far as the
// preset is a coarse one. A model that copies reads few tokens of few layers:
// errors of values come through as they are.
Preset Refined(const Preset& preset, double repetition);

}  // namespace kvcompress::klt

#endif  // KVCOMPRESS_CODECS_KLT_REPEATS_H_
