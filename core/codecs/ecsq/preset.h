// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The parameters of ecsq: how coarse the quantizer's steps are.

#ifndef KVCOMPRESS_CODECS_ECSQ_PRESET_H_
#define KVCOMPRESS_CODECS_ECSQ_PRESET_H_

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"
#include "coding/step_options.h"

namespace kvcompress::ecsq {

using Preset = coding::StepOptions;

// "contract", "high", "max", or two steps "0.52,0.52" for keys and values:
// canonical decimals from 0.05 to 8 with up to four places. Nothing for other
// text.
std::optional<Preset> ParsePreset(absl::string_view text);

// A number in its one form, of at most four places: "0.52" but not "00.52",
// ".52", "0.520" or "1.". Bounds are in 1/10000. Nothing for other text.
std::optional<double> ParseDecimal(absl::string_view text, uint32_t least,
                                   uint32_t most);

}  // namespace kvcompress::ecsq

#endif  // KVCOMPRESS_CODECS_ECSQ_PRESET_H_
