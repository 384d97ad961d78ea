// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/klt/preset.h"

#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "codecs/klt/format.h"

namespace kvcompress::klt {
namespace {

constexpr uint32_t kMostWeighting = 10000;  // in 1/10000
constexpr double kMostOctaves = 0.75;

}  // namespace

std::optional<Preset> ParsePreset(absl::string_view text) {
  if (text == "contract") return Preset{.steps = *ecsq::ParsePreset(text)};
  if (text == "high") {
    return Preset{.steps = *ecsq::ParsePreset("0.6,0.8"),
                  .weighting = 0.3,
                  .most_octaves = kMostOctaves};
  }
  if (text == "max") {
    return Preset{.steps = *ecsq::ParsePreset("1.25,1.9"),
                  .weighting = 0.4,
                  .most_octaves = 0.5};
  }
  if (text == "ultra") {
    return Preset{.steps = *ecsq::ParsePreset("1.5,2.35"),
                  .weighting = 0.45,
                  .most_octaves = kMostOctaves};
  }
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ',');
  if (parts.size() < 2 || parts.size() > 4) return std::nullopt;
  const auto steps = ecsq::ParsePreset(absl::StrCat(parts[0], ",", parts[1]));
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
        ecsq::ParseDecimal(parts[3], 0, kMostWeighting);
    if (!weighting) return std::nullopt;
    preset.weighting = *weighting;
    preset.most_octaves = kMostOctaves;
  }
  return preset;
}

}  // namespace kvcompress::klt
