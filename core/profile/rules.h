// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The rules that the content of a profile keeps (core/FORMAT.md, "Profiles").
// Internal to the library.

#ifndef KVCOMPRESS_PROFILE_RULES_H_
#define KVCOMPRESS_PROFILE_RULES_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kvcompress/profile.h"

namespace kvcompress::profile {

// The steps of presets and of payloads.
inline constexpr float kLeastStep = 0x1p-40f;
inline constexpr float kMaxStep = 0x1p16f;
// Magnitudes of means, and scales, so that no arithmetic passes binary32.
inline constexpr float kMaxMean = 0x1p40f;
inline constexpr float kLeastScale = 0x1p-60f;
inline constexpr float kMaxScale = 0x1p30f;

// Whether `step` has at most 11 significant bits and lies within the bounds.
bool IsProfileStep(float step);

// Whether this names a preset.
bool IsPresetName(absl::string_view name);

// INVALID_ARGUMENT, saying which rule is broken.
absl::Status CheckContent(const ProfileContent& content);

}  // namespace kvcompress::profile

#endif  // KVCOMPRESS_PROFILE_RULES_H_
