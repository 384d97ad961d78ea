// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "profile/metadata.h"

#include <charconv>
#include <iterator>
#include <optional>

#include "absl/algorithm/container.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "digest/digest.h"
#include "kvcompress/error.h"
#include "kvcompress/safetensors.h"
#include "status/macros.h"

namespace kvcompress::profile {
namespace {

constexpr absl::string_view kVersionKey = "kvcompress.profile";
constexpr absl::string_view kLabelKey = "kvcompress.profile.label";
constexpr absl::string_view kTrainingKey = "kvcompress.profile.training";
constexpr absl::string_view kPresetsKey = "kvcompress.profile.presets";
constexpr absl::string_view kRotationsKey = "kvcompress.profile.rotations";
constexpr absl::string_view kGroupsKey = "kvcompress.profile.groups";
constexpr absl::string_view kExpectationsKey =
    "kvcompress.profile.expectations";
constexpr absl::string_view kCachesKey = "kvcompress.profile.caches";
constexpr absl::string_view kVersion = "1";
// Of a file whose expectations have shares.
constexpr absl::string_view kVersionOfShares = "2";
// Of a file that knows its caches.
constexpr absl::string_view kVersionOfCaches = "3";
constexpr absl::string_view kInterleaved = "interleaved";
constexpr absl::string_view kHalves = "halves";

// The shortest decimal that reads as the same number.
std::string StepText(float step) {
  char digits[64];
  const std::to_chars_result end = std::to_chars(
      std::begin(digits), std::end(digits), step, std::chars_format::fixed);
  return std::string(std::begin(digits), end.ptr);
}

std::string PresetsText(const std::vector<ProfilePreset>& presets) {
  return absl::StrJoin(
      presets, ",", [](std::string* out, const ProfilePreset& preset) {
        absl::StrAppend(out, preset.name, "=", StepText(preset.step));
      });
}

std::string ExpectationsText(const std::vector<ProfilePreset>& presets) {
  return absl::StrJoin(
      presets, ",", [](std::string* out, const ProfilePreset& preset) {
        absl::StrAppend(out, StepText(preset.expected->ratio), "/",
                        StepText(preset.expected->divergence), "/",
                        StepText(preset.expected->int4_divergence));
        if (preset.expected->most_share > 0) {
          absl::StrAppend(out, "/", StepText(preset.expected->least_share), "/",
                          StepText(preset.expected->most_share));
        }
      });
}

std::string RotationsText(const std::vector<ProfileRotation>& rotations) {
  return absl::StrJoin(
      rotations, ",", [](std::string* out, const ProfileRotation& rotation) {
        absl::StrAppend(out, rotation.interleaved ? kInterleaved : kHalves);
      });
}

std::string TensorText(const ProfileTensor& tensor) {
  return absl::StrCat(
      tensor.role == TensorRole::kKey ? "k" : "v", tensor.layer, ":",
      tensor.heads, "x", tensor.channels, ":",
      tensor.rotation ? absl::StrCat(*tensor.rotation) : std::string("-"));
}

std::string GroupsText(const std::vector<ProfileGroup>& groups) {
  return absl::StrJoin(
      groups, ";", [](std::string* out, const ProfileGroup& group) {
        absl::StrAppend(out, absl::StrJoin(group.tensors, ",",
                                           [](std::string* text,
                                              const ProfileTensor& tensor) {
                                             text->append(TensorText(tensor));
                                           }));
      });
}

absl::Status ParsePresets(absl::string_view text, ProfileContent* content) {
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::pair<absl::string_view, absl::string_view> sides =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    ProfilePreset preset{.name = std::string(sides.first)};
    if (content->presets.size() == kMaxProfilePresets ||
        !absl::SimpleAtof(sides.second, &preset.step)) {
      return Damaged("the list of presets");
    }
    content->presets.push_back(std::move(preset));
  }
  return absl::OkStatus();
}

bool HasShares(const ProfileContent& content) {
  const std::optional<ProfileExpectation>& first =
      content.presets.front().expected;
  return first && first->most_share > 0;
}

absl::string_view VersionOf(const ProfileContent& content) {
  if (!content.caches.empty()) return kVersionOfCaches;
  return HasShares(content) ? kVersionOfShares : kVersion;
}

absl::Status ParseExpectations(absl::string_view text,
                               ProfileContent* content) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ',');
  if (parts.size() != content->presets.size()) {
    return Damaged("the number of expectations");
  }
  const bool shares = absl::c_count(parts[0], '/') == 4;
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::vector<absl::string_view> numbers =
        absl::StrSplit(parts[i], '/');
    ProfileExpectation expected;
    if (numbers.size() != (shares ? 5 : 3) ||
        !absl::SimpleAtof(numbers[0], &expected.ratio) ||
        !absl::SimpleAtof(numbers[1], &expected.divergence) ||
        !absl::SimpleAtof(numbers[2], &expected.int4_divergence) ||
        (shares && (!absl::SimpleAtof(numbers[3], &expected.least_share) ||
                    !absl::SimpleAtof(numbers[4], &expected.most_share) ||
                    !(expected.most_share > 0)))) {
      return Damaged("the list of expectations");
    }
    content->presets[i].expected = expected;
  }
  return absl::OkStatus();
}

absl::Status ParseCaches(absl::string_view text, ProfileContent* content) {
  if (text.size() >= kMaxProfileCaches * (kDigestDigits + 1)) {
    return Damaged("too many caches");
  }
  content->caches = absl::StrSplit(text, ',');
  return absl::OkStatus();
}

absl::StatusOr<ProfileTensor> ParseTensor(absl::string_view text) {
  const std::vector<absl::string_view> fields = absl::StrSplit(text, ':');
  ProfileTensor tensor;
  if (fields.size() != 3 || fields[0].empty()) {
    return Damaged("the list of groups");
  }
  tensor.role = fields[0][0] == 'k' ? TensorRole::kKey : TensorRole::kValue;
  const std::pair<absl::string_view, absl::string_view> shape =
      absl::StrSplit(fields[1], absl::MaxSplits('x', 1));
  size_t rotation = 0;
  if (!absl::SimpleAtoi(fields[0].substr(1), &tensor.layer) ||
      !absl::SimpleAtoi(shape.first, &tensor.heads) ||
      !absl::SimpleAtoi(shape.second, &tensor.channels) ||
      (fields[2] != "-" && !absl::SimpleAtoi(fields[2], &rotation))) {
    return Damaged("the list of groups");
  }
  if (fields[2] != "-") tensor.rotation = rotation;
  return tensor;
}

absl::Status ParseGroups(absl::string_view text, ProfileContent* content) {
  for (const absl::string_view group : absl::StrSplit(text, ';')) {
    if (content->groups.size() == kMaxProfileGroups) {
      return Damaged("too many groups");
    }
    content->groups.emplace_back();
    for (const absl::string_view part : absl::StrSplit(group, ',')) {
      if (content->groups.back().tensors.size() == kMaxGroupTensors) {
        return Damaged("too many tensors in a group");
      }
      KVC_ASSIGN_OR_RETURN(ProfileTensor tensor, ParseTensor(part));
      content->groups.back().tensors.push_back(tensor);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Damaged(absl::string_view what) {
  return MakeError(absl::StatusCode::kDataLoss,
                   absl::StrCat("the profile is damaged: ", what),
                   {.reason = "PROFILE_DAMAGED"});
}

absl::Status Damaged(const absl::Status& cause) {
  return Reclassify(cause, absl::StatusCode::kDataLoss, "PROFILE_DAMAGED",
                    "the profile is damaged: ");
}

Metadata WriteMetadata(const ProfileContent& content) {
  Metadata metadata = {
      {std::string(kVersionKey), std::string(VersionOf(content))},
      {std::string(kLabelKey), content.label},
      {std::string(kTrainingKey), content.training},
      {std::string(kPresetsKey), PresetsText(content.presets)},
      {std::string(kRotationsKey), RotationsText(content.rotations)},
      {std::string(kGroupsKey), GroupsText(content.groups)}};
  if (content.presets.front().expected) {
    metadata.emplace_back(kExpectationsKey, ExpectationsText(content.presets));
  }
  if (!content.caches.empty()) {
    metadata.emplace_back(kCachesKey, absl::StrJoin(content.caches, ","));
  }
  return metadata;
}

absl::Status ParseMetadata(const Metadata& metadata, ProfileContent* content) {
  const absl::string_view keys[] = {kVersionKey, kLabelKey,     kTrainingKey,
                                    kPresetsKey, kRotationsKey, kGroupsKey};
  if (metadata.empty() || metadata[0].first != kVersionKey) {
    return MakeError(absl::StatusCode::kFailedPrecondition,
                     "the file is not a profile: its metadata does not begin "
                     "with kvcompress.profile",
                     {.reason = "NOT_A_PROFILE"});
  }
  const absl::string_view version = metadata[0].second;
  if (version != kVersion && version != kVersionOfShares &&
      version != kVersionOfCaches) {
    return MakeError(
        absl::StatusCode::kUnimplemented,
        absl::StrCat("the profile has version ", QuoteName(version),
                     "; this build reads versions ", kVersion, " to ",
                     kVersionOfCaches),
        {.reason = "LATER_FORMAT"});
  }
  if (metadata.size() < std::size(keys)) {
    return Damaged("the number of keys of its metadata");
  }
  for (size_t i = 0; i < std::size(keys); ++i) {
    if (metadata[i].first != keys[i]) {
      return Damaged(absl::StrCat("key ", keys[i], " is missing"));
    }
  }
  content->label = metadata[1].second;
  content->training = metadata[2].second;
  KVC_RETURN_IF_ERROR(ParsePresets(metadata[3].second, content));
  for (size_t i = std::size(keys); i < metadata.size(); ++i) {
    const auto& [key, text] = metadata[i];
    if (key == kExpectationsKey) {
      KVC_RETURN_IF_ERROR(ParseExpectations(text, content));
    } else if (key == kCachesKey) {
      KVC_RETURN_IF_ERROR(ParseCaches(text, content));
    } else {
      return Damaged(absl::StrCat("a key behind ", kGroupsKey));
    }
  }
  const std::string& rotations = metadata[4].second;
  if (!rotations.empty()) {
    for (const absl::string_view kind : absl::StrSplit(rotations, ',')) {
      if (content->rotations.size() == kMaxProfileRotations) {
        return Damaged("too many rotations");
      }
      content->rotations.push_back({.interleaved = kind == kInterleaved});
    }
  }
  return ParseGroups(metadata[5].second, content);
}

}  // namespace kvcompress::profile
