// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The parameters of klt: how coarse the quantizer's steps are, and how many
// basis vectors a group may have.

#ifndef KVCOMPRESS_CODECS_KLT_PRESET_H_
#define KVCOMPRESS_CODECS_KLT_PRESET_H_

#include <cstddef>
#include <optional>

#include "absl/strings/string_view.h"
#include "coding/step_options.h"

namespace kvcompress::klt {

struct Preset {
  // Steps, and whether the bounds of "contract" are to hold.
  coding::StepOptions steps;
  // Most basis vectors of a group; not set: by the number of tokens.
  std::optional<size_t> vectors;
  // How strongly steps follow the weight of a token; 0 for equal steps.
  double weighting = 0;
  // How strongly steps follow the sharpness of a layer's attention; 0 for not.
  double sharpening = 0;
};

// "contract", "high", "max", "ultra", two steps "0.6,0.7" for keys and values
// as in ecsq, these and a number of vectors from 0 to 128: "0.6,0.7,32", also
// the weighting, from 0 to 1: "1.5,2.35,96,0.45", and the sharpening, from 0 to
// 2: "1.5,2.35,96,0.45,0.75". Nothing for other text.
std::optional<Preset> ParsePreset(absl::string_view text);

}  // namespace kvcompress::klt

#endif  // KVCOMPRESS_CODECS_KLT_PRESET_H_
