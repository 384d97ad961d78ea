// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// How coarse the quantizer's steps are: what a preset of ecsq or klt stands
// for.

#ifndef KVCOMPRESS_CODING_STEP_OPTIONS_H_
#define KVCOMPRESS_CODING_STEP_OPTIONS_H_

#include "codecs/option_schema.h"

namespace kvcompress::coding {

struct StepOptions {
  // Step of keys, and of tensors without a role, over the root mean square of
  // what their channels leave without their means.
  double key_step = 0;
  // The same of values, each token divided by its norm.
  double value_step = 0;
  // Verify that the tensor keeps the bounds of KeepsContract, and lower the
  // step until it does.
  bool contract = false;
  // Code the newest tokens with half the step.
  bool recent = false;
};

// The options of the two steps, which klt has as well.
CodecOption KeyStepOption();
CodecOption ValueStepOption();

// The preset "contract" of both.
StepOptions ContractSteps();

}  // namespace kvcompress::coding

#endif  // KVCOMPRESS_CODING_STEP_OPTIONS_H_
