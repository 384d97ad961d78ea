// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Rounds the coefficients of a group to levels, weighing errors against bits,
// and chooses the classes that code them. For encoders only.

#ifndef KVCOMPRESS_CODECS_KLT_ROUNDING_H_
#define KVCOMPRESS_CODECS_KLT_ROUNDING_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "kvcompress/checkpoint.h"

namespace kvcompress::klt {

struct RoundingInput {
  absl::Span<const float> coefficients;  // [tokens, components], in steps
  absl::Span<const int8_t> offsets;      // of each token
  size_t first_token = 0;                // those before it are sinks
  // Tokens of this offset or more are rounded to the nearest.
  int fine = 0;
  // Null, or ends it before all is rounded.
  Checkpoint* checkpoint = nullptr;
};

// Writes levels, [tokens, components], under `classes`, one for each component:
// in steps, or by a trellis in half steps. Levels of sinks are left alone.
void Round(const RoundingInput& input, absl::Span<const uint8_t> classes,
           int32_t* levels);
void RoundByTrellis(const RoundingInput& input,
                    absl::Span<const uint8_t> classes, int32_t* levels);

// Moves each class to the one nearby that codes the levels in the fewest bits.
void ChooseClasses(const RoundingInput& input, bool trellis,
                   const int32_t* levels, absl::Span<uint8_t> classes);

}  // namespace kvcompress::klt

#endif  // KVCOMPRESS_CODECS_KLT_ROUNDING_H_
