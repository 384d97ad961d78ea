// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "coding/step_options.h"

namespace kvcompress::coding {
namespace {

CodecOption StepOption(const char* name, const char* description) {
  return {.name = name,
          .type = CodecOption::Type::kDecimal,
          .least = 0.05,
          .most = 8,
          .required = true,
          .always_written = true,
          .description = description};
}

}  // namespace

CodecOption KeyStepOption() {
  return StepOption("key_step",
                    "Quantizer step of keys, and of tensors without a role, "
                    "over the RMS of what their channels leave without their "
                    "means");
}

CodecOption ValueStepOption() {
  return StepOption("value_step",
                    "Quantizer step of values, each token divided by its norm");
}

StepOptions ContractSteps() {
  return {.key_step = 0.43, .value_step = 0.41, .contract = true};
}

}  // namespace kvcompress::coding
