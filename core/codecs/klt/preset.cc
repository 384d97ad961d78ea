// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/klt/preset.h"

#include "codecs/klt/format.h"

namespace kvcompress::klt {
namespace {

// Measured on SmolLM2-135M, Gemma 3 270M and Qwen2.5-Coder-0.5B
// (docs/decisions/steps-follow-keys.md).
Preset Weighted(double key_step, double value_step) {
  return {.steps = {.key_step = key_step, .value_step = value_step},
          .weighting = 0.3,
          .sharpening = 0.5};
}

CodecOption ComponentsOption() {
  return {.name = "components",
          .most = kMaxVectors,
          .description =
              "Most components of a group of heads; where it is "
              "not given, by the number of tokens"};
}

CodecOption WeightingOption() {
  return {.name = "weighting",
          .type = CodecOption::Type::kDecimal,
          .most = 1,
          .default_value = 0,
          .description =
              "How strongly steps follow the attention that a token gets"};
}

CodecOption SharpeningOption() {
  return {
      .name = "sharpening",
      .type = CodecOption::Type::kDecimal,
      .most = 2,
      .default_value = 0,
      .description =
          "How strongly steps of keys follow how sharply a layer picks tokens"};
}

}  // namespace

const OptionSchema<Preset>& Schema() {
  static const auto* const schema = new OptionSchema<Preset>(
      "klt",
      {{coding::KeyStepOption(),
        [](double value, Preset* out) { out->steps.key_step = value; }},
       {coding::ValueStepOption(),
        [](double value, Preset* out) { out->steps.value_step = value; }},
       {ComponentsOption(),
        [](double value, Preset* out) {
          out->vectors = static_cast<size_t>(value);
        }},
       {WeightingOption(),
        [](double value, Preset* out) { out->weighting = value; }},
       {SharpeningOption(),
        [](double value, Preset* out) { out->sharpening = value; }}},
      {{"contract", {.steps = coding::ContractSteps()}},
       {"high", Weighted(1.1, 0.65)},
       {"max", Weighted(2.1, 1.2)},
       {"ultra", Weighted(2.5, 1.4)}});
  return *schema;
}

}  // namespace kvcompress::klt
