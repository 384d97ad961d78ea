// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "coding/step_options.h"

#include <cstdint>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"

namespace kvcompress::coding {
namespace {

constexpr uint32_t kMinStep = 500;  // in 1/10000
constexpr uint32_t kMaxStep = 80000;

}  // namespace

std::optional<double> ParseDecimal(absl::string_view text, uint32_t least,
                                   uint32_t most) {
  if (text.empty() || text.size() > 6 || !absl::ascii_isdigit(text[0])) {
    return std::nullopt;
  }
  uint32_t number = static_cast<uint32_t>(text[0] - '0') * 10000;
  if (text.size() > 1) {
    if (text[1] != '.' || text.size() == 2 || text.back() == '0') {
      return std::nullopt;
    }
    uint32_t unit = 1000;
    for (const char digit : text.substr(2)) {
      if (!absl::ascii_isdigit(digit)) return std::nullopt;
      number += static_cast<uint32_t>(digit - '0') * unit;
      unit /= 10;
    }
  }
  if (number < least || number > most) return std::nullopt;
  return static_cast<double>(number) / 10000;
}

std::optional<StepOptions> ParseStepOptions(absl::string_view text) {
  if (text == "contract") {
    return StepOptions{.key_step = 0.43, .value_step = 0.41, .contract = true};
  }
  if (text == "high") return StepOptions{.key_step = 0.52, .value_step = 0.52};
  if (text == "max") {
    return StepOptions{.key_step = 0.8, .value_step = 1.2, .recent = true};
  }
  const std::pair<absl::string_view, absl::string_view> both =
      absl::StrSplit(text, absl::MaxSplits(',', 1));
  const std::optional<double> key =
      ParseDecimal(both.first, kMinStep, kMaxStep);
  const std::optional<double> value =
      ParseDecimal(both.second, kMinStep, kMaxStep);
  if (!key || !value) return std::nullopt;
  return StepOptions{.key_step = *key, .value_step = *value};
}

}  // namespace kvcompress::coding
