// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/klt/preset.h"

#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "codecs/klt/format.h"

namespace kvcompress::klt {
namespace {

constexpr uint32_t kMaxWeighting = 10000;   // in 1/10000
constexpr uint32_t kMaxSharpening = 20000;  // in 1/10000

// Measured on SmolLM2-135M, on texts of their own.
Preset Weighted(absl::string_view steps) {
  return {.steps = *coding::ParseStepOptions(steps),
          .weighting = 0.3,
          .sharpening = 0.75};
}

}  // namespace

std::optional<Preset> ParsePreset(absl::string_view text) {
  if (text == "contract") {
    return Preset{.steps = *coding::ParseStepOptions(text)};
  }
  if (text == "high") return Weighted("0.95,1");
  if (text == "max") return Weighted("1.6,2.1");
  if (text == "ultra") return Weighted("2.1,2.5");
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ',');
  if (parts.size() < 2 || parts.size() > 5) return std::nullopt;
  const auto steps =
      coding::ParseStepOptions(absl::StrCat(parts[0], ",", parts[1]));
  if (!steps) return std::nullopt;
  Preset preset = {.steps = *steps};
  if (parts.size() > 2) {
    uint32_t vectors;
    if (!absl::SimpleAtoi(parts[2], &vectors) || vectors > kMaxVectors ||
        absl::StrCat(vectors) != parts[2]) {
      return std::nullopt;
    }
    preset.vectors = vectors;
  }
  if (parts.size() > 3) {
    const std::optional<double> weighting =
        coding::ParseDecimal(parts[3], 0, kMaxWeighting);
    if (!weighting) return std::nullopt;
    preset.weighting = *weighting;
  }
  if (parts.size() > 4) {
    const std::optional<double> sharpening =
        coding::ParseDecimal(parts[4], 0, kMaxSharpening);
    if (!sharpening) return std::nullopt;
    preset.sharpening = *sharpening;
  }
  return preset;
}

}  // namespace kvcompress::klt
