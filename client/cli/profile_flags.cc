// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "client/cli/profile_flags.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "kvcompress/profile.h"

namespace kvcompress::cli {
namespace {

// NAME=STEP, NAME=STEP:RATIO:KL:KL_OF_INT4 or the same with :LEAST:MOST behind
// it, joined by commas. What they are is left to the training to check.
absl::Status SetPresets(const std::string& text,
                        std::vector<ProfilePreset>* presets) {
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::pair<absl::string_view, absl::string_view> sides =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    const std::vector<absl::string_view> numbers =
        absl::StrSplit(sides.second, ':');
    ProfilePreset preset{.name = std::string(sides.first)};
    ProfileExpectation expected;
    bool valid = !numbers.empty() && absl::SimpleAtof(numbers[0], &preset.step);
    if (numbers.size() > 1) {
      valid = valid && (numbers.size() == 4 || numbers.size() == 6) &&
              absl::SimpleAtof(numbers[1], &expected.ratio) &&
              absl::SimpleAtof(numbers[2], &expected.divergence) &&
              absl::SimpleAtof(numbers[3], &expected.int4_divergence);
      if (numbers.size() == 6) {
        valid = valid && absl::SimpleAtof(numbers[4], &expected.least_share) &&
                absl::SimpleAtof(numbers[5], &expected.most_share);
      }
      preset.expected = expected;
    }
    if (!valid) {
      return InvalidValue(text, "train-presets",
                          "must be a list such as high=0.5,max=1");
    }
    presets->push_back(std::move(preset));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status InvalidValue(absl::string_view value, absl::string_view flag,
                          absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(
      "invalid value \"", value, "\" for flag -", flag, ": ", why));
}

absl::Status SetCount(const std::optional<std::string>& text,
                      absl::string_view flag, size_t least, size_t most,
                      size_t* count) {
  if (!text) return absl::OkStatus();
  uint64_t value = 0;
  if (!absl::SimpleAtoi(*text, &value)) return InvalidValue(*text, flag);
  if (value < least || value > most) {
    return InvalidValue(*text, flag,
                        absl::StrCat("must be from ", least, " to ", most));
  }
  *count = value;
  return absl::OkStatus();
}

absl::Status SetProfile(const RawFlags& raw, Flags* flags) {
  const bool trains = flags->mode == Mode::kTrain;
  if (!trains &&
      (raw.model_label || raw.profile_layers || raw.profile_components ||
       raw.train_metric || raw.train_basis || raw.train_presets ||
       raw.train_note || raw.train_contract)) {
    return absl::InvalidArgumentError(
        "-model-label, -profile-layers, -profile-components, -train-metric, "
        "-train-contract, -train-basis, -train-presets and -train-note need "
        "-train-profile");
  }
  if (!raw.profile.empty() && (trains || flags->mode == Mode::kInfo)) {
    return absl::InvalidArgumentError(
        "-profile needs compression, -metrics-only or decoding");
  }
  const bool compresses =
      flags->mode == Mode::kCompress || flags->mode == Mode::kMeasure ||
      flags->mode == Mode::kCompare || flags->mode == Mode::kBench;
  if (!raw.profile.empty() && !raw.server.empty() && !compresses) {
    return absl::InvalidArgumentError(
        "with -server, -profile needs compression or -metrics-only: a server "
        "finds the profile of an artefact by itself");
  }
  flags->profile = raw.profile;
  if (!trains) {
    return SetCount(raw.block_tokens, "block-tokens", kLeastBlockTokens,
                    kMaxBlockTokens, &flags->block_tokens);
  }
  if (raw.files.empty()) {
    return absl::InvalidArgumentError(
        "-train-profile needs caches behind the flags");
  }
  if (!raw.model_label || raw.model_label->empty() ||
      raw.model_label->size() > kMaxProfileLabel) {
    return absl::InvalidArgumentError(
        absl::StrCat("-train-profile needs -model-label of 1 to ",
                     kMaxProfileLabel, " bytes"));
  }
  flags->files = raw.files;
  flags->model_label = *raw.model_label;
  flags->train_contract = raw.train_contract;
  if (raw.train_contract) flags->profile_components = kMaxGroupComponents;
  absl::Status status = SetCount(raw.profile_layers, "profile-layers", 0,
                                 kMaxGroupTensors / 2, &flags->profile_layers);
  status.Update(SetCount(raw.profile_components, "profile-components", 1,
                         kMaxGroupComponents, &flags->profile_components));
  if (raw.train_presets) {
    status.Update(SetPresets(*raw.train_presets, &flags->train_presets));
  }
  if (raw.train_basis && (raw.train_metric || raw.train_note ||
                          raw.profile_layers || raw.profile_components)) {
    status.Update(absl::InvalidArgumentError(
        "-train-basis cannot be combined with -train-metric, -train-note, "
        "-profile-layers and -profile-components: the profile has them"));
  }
  if (raw.train_contract && (raw.train_metric || raw.train_basis)) {
    status.Update(absl::InvalidArgumentError(
        "-train-contract cannot be combined with -train-metric and "
        "-train-basis"));
  }
  flags->train_metric = raw.train_metric.value_or("");
  flags->train_basis = raw.train_basis.value_or("");
  flags->train_note = raw.train_note.value_or("");
  return status;
}

}  // namespace kvcompress::cli
