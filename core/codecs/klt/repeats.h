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

// How much of a cache, 0 to 1, has the finer steps of what repeats itself: the
// share of a sample of runs of 7 tokens that are like an earlier run of their
// head, without the means of the channels; it looks at four tokens of a run. It
// looks at no more than 2^15 tokens and 64 runs of up to four heads.
// Anything when the checkpoint stops.
double Repetition(const Geometry& geometry, LoadTokens load,
                  Checkpoint* checkpoint = nullptr);

// The preset for such a cache: values have steps of no more than 1, and keys
// follow the sharpness of their layer up to twice as strongly, as far as the
// preset is a coarse one. A model that copies reads few tokens of few layers:
// errors of values come through as they are.
Preset Refined(const Preset& preset, double repetition);

}  // namespace kvcompress::klt

#endif  // KVCOMPRESS_CODECS_KLT_REPEATS_H_
