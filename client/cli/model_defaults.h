// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// What a config.json leaves out of a rotary position embedding. Those that hold
// a model inside another, such as Gemma 3's of 4B, leave out nearly everything.

#ifndef KVCOMPRESS_CLIENT_CLI_MODEL_DEFAULTS_H_
#define KVCOMPRESS_CLIENT_CLI_MODEL_DEFAULTS_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace kvcompress::cli {

// What transformers takes for a model whose config.json leaves it out.
struct ModelDefaults {
  absl::string_view type;
  double theta;
  double rotated = 1;       // share of a head
  double window_theta = 0;  // of layers with a window; 0: as all layers
  uint32_t pattern = 0;     // each such layer has no window
};
inline constexpr ModelDefaults kDefaults[] = {
    {"codegen", 1e4},
    {"cohere", 5e5},
    {"cohere2", 1e4},
    {"deepseek_v2", 1e4},
    {"deepseek_v3", 1e4},
    {"ernie4_5", 5e5},
    {"ernie4_5_moe", 5e5},
    {"gemma", 1e4},
    {"gemma2", 1e4},
    {"gemma3_text", 1e6, 1, 1e4, 6},
    {"gemma3n_text", 1e6, 1, 1e4, 5},
    {"glm", 1e4, 0.5},
    {"glm4", 1e4, 0.5},
    {"glm4_moe", 1e4, 0.5},
    {"gpt_neox", 1e4, 0.25},
    {"gpt_oss", 1.5e5},
    {"gptj", 1e4},
    {"granite", 1e4},
    {"helium", 1e5},
    {"llama", 1e4},
    {"llama4_text", 5e5},
    {"mistral", 1e4},
    {"mixtral", 1e6},
    {"mllama_text_model", 5e5},
    {"nemotron", 1e4, 0.5},
    {"olmo", 1e4},
    {"olmo2", 1e4},
    {"olmo3", 5e5, 1, 5e5, 4},
    {"persimmon", 1e4, 0.5},
    {"phi", 1e4, 0.5},
    {"phi3", 1e4},
    {"phimoe", 1e6},
    {"qwen2", 1e4},
    {"qwen2_5_vl_text", 1e6},
    {"qwen2_moe", 1e4},
    {"qwen2_vl_text", 1e6},
    {"qwen3", 1e4},
    {"qwen3_moe", 1e4},
    {"qwen3_next", 1e4, 0.25},
    {"qwen3_vl_text", 5e5},
    {"smollm3", 2e6},
    {"stablelm", 1e4, 0.25},
    {"starcoder2", 1e4},
};

// Those of a model_type; theta is 0 for one that is not known.
inline ModelDefaults DefaultsOf(absl::string_view type) {
  for (const ModelDefaults& each : kDefaults) {
    if (each.type == type) return each;
  }
  return {.type = "", .theta = 0};
}

}  // namespace kvcompress::cli

#endif  // KVCOMPRESS_CLIENT_CLI_MODEL_DEFAULTS_H_
