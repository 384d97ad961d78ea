// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/ecsq/preset.h"

namespace kvcompress::ecsq {
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

Preset Contract() {
  return {.key_step = 0.43, .value_step = 0.41, .contract = true};
}

const OptionSchema<Preset>& Schema() {
  static const auto* const schema = new OptionSchema<Preset>(
      "ecsq",
      {{KeyStepOption(),
        [](double value, Preset* out) { out->key_step = value; }},
       {ValueStepOption(),
        [](double value, Preset* out) { out->value_step = value; }}},
      {{"contract", Contract()},
       {"high", {.key_step = 0.52, .value_step = 0.52}},
       {"max", {.key_step = 0.8, .value_step = 1.2, .recent = true}}});
  return *schema;
}

}  // namespace kvcompress::ecsq
