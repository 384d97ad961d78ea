// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// How coarse the quantizer's steps are: what a preset of ecsq or klt stands
// for.

#ifndef KVCOMPRESS_CODING_STEP_OPTIONS_H_
#define KVCOMPRESS_CODING_STEP_OPTIONS_H_

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

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

// "contract", "high", "max", or two steps "0.52,0.52" for keys and values:
// canonical decimals from 0.05 to 8 with up to four places. Nothing for other
// text.
std::optional<StepOptions> ParseStepOptions(absl::string_view text);

// A number in its one form, of at most four places: "0.52" but not "00.52",
// ".52", "0.520" or "1.". Bounds are in 1/10000. Nothing for other text.
std::optional<double> ParseDecimal(absl::string_view text, uint32_t least,
                                   uint32_t most);

}  // namespace kvcompress::coding

#endif  // KVCOMPRESS_CODING_STEP_OPTIONS_H_
