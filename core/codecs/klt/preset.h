// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The parameters of klt: how coarse the quantizer's steps are, how many basis
// vectors a group may have, and what steps follow.

#ifndef KVCOMPRESS_CODECS_KLT_PRESET_H_
#define KVCOMPRESS_CODECS_KLT_PRESET_H_

#include <cstddef>
#include <optional>

#include "codecs/option_schema.h"
#include "coding/step_options.h"

namespace kvcompress::klt {

struct Preset {
  // Steps, and whether the bounds of "contract" are to hold.
  coding::StepOptions steps;
  // Most basis vectors of a group; not set: by the number of tokens.
  std::optional<size_t> vectors;
  // How strongly steps follow the weight of a token; 0 for equal steps.
  double weighting = 0;
  // How strongly steps of keys follow the sharpness of their layer's attention;
  // 0 for not.
  double sharpening = 0;
};

// "contract", "high", "max", "ultra", or two steps and what may follow them:
// "0.6,0.7", "0.6,0.7,32", "1.5,2.35,96,0.45", "1.5,2.35,96,0.45,0.35".
const OptionSchema<Preset>& Schema();

}  // namespace kvcompress::klt

#endif  // KVCOMPRESS_CODECS_KLT_PRESET_H_
