// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The parameters of ecsq: how coarse the quantizer's steps are.

#ifndef KVCOMPRESS_CODECS_ECSQ_PRESET_H_
#define KVCOMPRESS_CODECS_ECSQ_PRESET_H_

#include "codecs/option_schema.h"

namespace kvcompress::ecsq {

struct Preset {
  // Step of keys, and of tensors without a role, over the root mean square of
  // what their channels leave without their means.
  double key_step = 0;
  // The same of values, each token divided by its norm.
  double value_step = 0;
  // Verify that the tensor keeps the bounds of Gate, and lower the step until
  // it does.
  bool contract = false;
  // Code the newest tokens with half the step.
  bool recent = false;
};

// The options of the two steps, which klt has as well.
CodecOption KeyStepOption();
CodecOption ValueStepOption();

// The preset "contract".
Preset Contract();

// "contract", "high", "max", or two steps "0.52,0.52".
const OptionSchema<Preset>& Schema();

}  // namespace kvcompress::ecsq

#endif  // KVCOMPRESS_CODECS_ECSQ_PRESET_H_
