// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "profile/rules.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "digest/digest.h"
#include "entropy/tables.h"
#include "kvcompress/error.h"
#include "kvcompress/safetensors.h"
#include "quantization/steps.h"
#include "status/macros.h"

namespace kvcompress::profile {
namespace {

absl::Status Bad(absl::string_view what) {
  return MakeError(absl::StatusCode::kInvalidArgument,
                   absl::StrCat("the profile has ", what),
                   {.reason = "INVALID_PROFILE"});
}

absl::Status BadGroup(size_t group, absl::string_view what) {
  return Bad(absl::StrCat(what, " in group ", group));
}

// Also false for NaN.
bool Within(float value, float least, float most) {
  return value >= least && value <= most;
}

bool AllWithin(const std::vector<float>& values, float least, float most) {
  return std::all_of(values.begin(), values.end(),
                     [&](float value) { return Within(value, least, most); });
}

bool AllSymmetric(const std::vector<int16_t>& values) {
  return std::find(values.begin(), values.end(), INT16_MIN) == values.end();
}

absl::Status CheckTensors(const ProfileContent& content, size_t index,
                          std::set<std::pair<TensorRole, uint32_t>>* seen) {
  const ProfileGroup& group = content.groups[index];
  if (group.tensors.empty() || group.tensors.size() > kMaxGroupTensors) {
    return BadGroup(index, "no tensors, or too many,");
  }
  uint64_t channels = 0;
  for (const ProfileTensor& tensor : group.tensors) {
    if (tensor.role == TensorRole::kNone) return BadGroup(index, "a bad role");
    if (!seen->emplace(tensor.role, tensor.layer).second) {
      return BadGroup(index, "a layer's keys or values for the second time");
    }
    if (tensor.channels == 0 || tensor.channels > kMaxProfileHeadDim ||
        tensor.heads == 0 || tensor.heads > kMaxGroupChannels) {
      return BadGroup(index, "a bad shape of a tensor");
    }
    channels += tensor.width();
    if (channels > kMaxGroupChannels) {
      return BadGroup(index, "too many channels");
    }
    if (!tensor.rotation) continue;
    if (*tensor.rotation >= content.rotations.size() ||
        2 * content.rotations[*tensor.rotation].increments.size() >
            tensor.channels) {
      return BadGroup(index, "a rotation that does not fit a tensor");
    }
  }
  if (channels != group.channels()) {
    return BadGroup(index, "a number of channels that is not the tensors'");
  }
  return absl::OkStatus();
}

absl::Status CheckNumbers(const ProfileContent& content, size_t index) {
  const ProfileGroup& group = content.groups[index];
  const size_t channels = group.channels();
  if (group.components == 0 || group.components > kMaxGroupComponents ||
      group.components > channels) {
    return BadGroup(index, "a bad number of components");
  }
  const size_t numbers = group.components * channels;
  const bool encodes = !group.encode.empty() || !group.encode_scales.empty();
  if (group.scales.size() != channels || group.decode.size() != numbers ||
      group.classes.size() != content.presets.size() * group.components ||
      (encodes && (group.encode.size() != numbers ||
                   group.encode_scales.size() != channels))) {
    return BadGroup(index, "a matrix of another size");
  }
  if (!AllWithin(group.means, -kMaxMean, kMaxMean)) {
    return BadGroup(index, "a mean out of its range");
  }
  if (!AllWithin(group.scales, kLeastScale, kMaxScale) ||
      !AllWithin(group.encode_scales, kLeastScale, 1 / kLeastScale)) {
    return BadGroup(index, "a scale out of its range");
  }
  if (!AllSymmetric(group.decode) || !AllSymmetric(group.encode)) {
    return BadGroup(index, "-32768 in a matrix");
  }
  if (std::any_of(group.classes.begin(), group.classes.end(),
                  [](uint8_t klass) { return klass >= coding::kClasses; })) {
    return BadGroup(index, "a class out of its range");
  }
  return absl::OkStatus();
}

bool IsExpectation(const ProfileExpectation& expected) {
  const float least = std::numeric_limits<float>::min();
  return Within(expected.ratio, least, kMaxExpectation) &&
         Within(expected.divergence, least, kMaxExpectation) &&
         Within(expected.int4_divergence, least, kMaxExpectation) &&
         ((expected.least_share == 0 && expected.most_share == 0) ||
          (Within(expected.least_share, least, expected.most_share) &&
           expected.most_share <= kMaxExpectation));
}

bool IsMark(absl::string_view mark) {
  return mark.size() == kDigestDigits &&
         mark.find_first_not_of("0123456789abcdef") == absl::string_view::npos;
}

absl::Status CheckPresets(const std::vector<ProfilePreset>& presets) {
  if (presets.empty() || presets.size() > kMaxProfilePresets) {
    return Bad("no presets, or too many");
  }
  std::set<absl::string_view> names;
  for (const ProfilePreset& preset : presets) {
    if (!IsPresetName(preset.name) || !names.insert(preset.name).second) {
      return Bad("a bad name of a preset, or one twice");
    }
    if (!IsProfileStep(preset.step)) return Bad("a bad step of a preset");
    const std::optional<ProfileExpectation>& first = presets.front().expected;
    if (preset.expected.has_value() != first.has_value() ||
        (preset.expected &&
         (!IsExpectation(*preset.expected) ||
          (preset.expected->most_share > 0) != (first->most_share > 0)))) {
      return Bad("a bad expectation of a preset, or of some presets only");
    }
  }
  return absl::OkStatus();
}

}  // namespace

bool IsProfileStep(float step) {
  return Within(step, kLeastStep, kMaxStep) && coding::IsStep(step);
}

bool IsPresetName(absl::string_view name) {
  constexpr size_t kMax = 32;
  return !name.empty() && name.size() <= kMax &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
         });
}

absl::Status CheckContent(const ProfileContent& content) {
  if (content.label.empty() || content.label.size() > kMaxProfileLabel ||
      !IsValidUtf8(content.label)) {
    return Bad(absl::StrCat("a label that is not 1 to ", kMaxProfileLabel,
                            " bytes of UTF-8"));
  }
  if (content.training.size() > kMaxProfileTraining ||
      !IsValidUtf8(content.training)) {
    return Bad(absl::StrCat("a training record that is not UTF-8 of at most ",
                            kMaxProfileTraining, " bytes"));
  }
  KVC_RETURN_IF_ERROR(CheckPresets(content.presets));
  if (content.rotations.size() > kMaxProfileRotations) {
    return Bad("too many rotations");
  }
  for (const ProfileRotation& rotation : content.rotations) {
    if (rotation.increments.empty() ||
        2 * rotation.increments.size() > kMaxProfileHeadDim) {
      return Bad("a rotation without pairs, or with too many");
    }
  }
  if (content.caches.size() > kMaxProfileCaches ||
      !std::all_of(content.caches.begin(), content.caches.end(), IsMark)) {
    return Bad("too many caches, or one that is no digest");
  }
  if (content.groups.empty() || content.groups.size() > kMaxProfileGroups) {
    return Bad("no groups, or too many");
  }
  std::set<std::pair<TensorRole, uint32_t>> seen;
  for (size_t i = 0; i < content.groups.size(); ++i) {
    KVC_RETURN_IF_ERROR(CheckTensors(content, i, &seen));
    KVC_RETURN_IF_ERROR(CheckNumbers(content, i));
  }
  return absl::OkStatus();
}

}  // namespace kvcompress::profile
