// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "profile_set.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "kvcompress/error.h"

namespace kvcompress {
namespace {

// Of those that a message lists.
constexpr size_t kMaxNames = 16;

absl::Status Refuse(absl::StatusCode code, absl::string_view reason,
                    absl::string_view message) {
  return MakeError(code, message,
                   {.reason = std::string(reason), .field = "options.profile"});
}

std::string NamesOf(const std::vector<LoadedProfile>& loaded) {
  if (loaded.empty()) return "it has none";
  const size_t shown = std::min(loaded.size(), kMaxNames);
  return absl::StrCat(
      "it has: ",
      absl::StrJoin(loaded.begin(), loaded.begin() + shown, ", ",
                    [](std::string* out, const LoadedProfile& each) {
                      out->append(each.name);
                    }),
      shown < loaded.size() ? ", and others" : "");
}

void AddOnce(const std::shared_ptr<const Profile>& profile,
             std::vector<std::shared_ptr<const Profile>>* profiles) {
  for (const std::shared_ptr<const Profile>& other : *profiles) {
    if (other->id().digest == profile->id().digest) return;
  }
  profiles->push_back(profile);
}

// The preset of a profile that a codec string asks for: `contract` for `auto`,
// and for `klt` alone.
absl::string_view PresetOf(absl::string_view codec) {
  const size_t colon = codec.rfind(':');
  return colon == absl::string_view::npos ? kContractPreset
                                          : codec.substr(colon + 1);
}

}  // namespace

ProfileSet::ProfileSet(std::vector<LoadedProfile> loaded,
                       std::vector<RefusedProfile> refused, size_t left_out)
    : loaded_(std::move(loaded)),
      refused_(std::move(refused)),
      left_out_(left_out) {
  std::sort(loaded_.begin(), loaded_.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
}

uint64_t ProfileSet::memory() const {
  uint64_t sum = 0;
  for (const std::shared_ptr<const Profile>& profile : All()) {
    sum += profile->memory();
  }
  return sum;
}

absl::StatusOr<std::shared_ptr<const Profile>> ProfileSet::Find(
    absl::string_view text, absl::string_view codec) const {
  for (const LoadedProfile& each : loaded_) {
    if (each.profile->id().digest == text || each.name == text) {
      return each.profile;
    }
  }
  absl::Status refused =
      WhyRefused(IsProfileDigest(text) ? FileNameOf(text) : std::string(text));
  if (!refused.ok()) return refused;
  const std::vector<std::shared_ptr<const Profile>> labelled = WithLabel(text);
  if (labelled.size() == 1) return labelled[0];
  std::vector<std::shared_ptr<const Profile>> with_preset;
  std::copy_if(labelled.begin(), labelled.end(),
               std::back_inserter(with_preset),
               [preset = PresetOf(codec)](const auto& profile) {
                 return profile->FindPreset(preset).has_value();
               });
  if (with_preset.size() == 1) return with_preset[0];
  if (labelled.empty()) {
    return Refuse(
        absl::StatusCode::kFailedPrecondition, "PROFILE_UNKNOWN",
        absl::StrCat("the service has no profile with the name, digest or "
                     "label ",
                     QuoteName(text), "; ", NamesOf(loaded_)));
  }
  return Refuse(
      absl::StatusCode::kFailedPrecondition, "PROFILE_AMBIGUOUS",
      absl::StrCat(labelled.size(), " profiles of the service have the label ",
                   QuoteName(text),
                   ", and not one alone has the preset: use a name or a "
                   "digest; ",
                   NamesOf(loaded_)));
}

std::vector<std::shared_ptr<const Profile>> ProfileSet::WithLabel(
    absl::string_view label) const {
  std::vector<std::shared_ptr<const Profile>> found;
  for (const LoadedProfile& each : loaded_) {
    if (each.profile->id().label == label) AddOnce(each.profile, &found);
  }
  return found;
}

std::vector<std::shared_ptr<const Profile>> ProfileSet::All() const {
  std::vector<std::shared_ptr<const Profile>> found;
  for (const LoadedProfile& each : loaded_) AddOnce(each.profile, &found);
  return found;
}

absl::Status ProfileSet::Explain(const absl::Status& error) const {
  if (error.ok()) return error;
  const std::optional<ErrorDetail> detail = GetErrorDetail(error);
  if (!detail || detail->reason != "PROFILE_MISSING" || !detail->profile) {
    return error;
  }
  absl::Status refused = WhyRefused(FileNameOf(*detail->profile));
  return refused.ok() ? error : refused;
}

absl::Status ProfileSet::WhyRefused(absl::string_view name) const {
  for (const RefusedProfile& each : refused_) {
    if (each.name != name) continue;
    const std::optional<ErrorDetail> detail = GetErrorDetail(each.why);
    return Reclassify(
        each.why, each.why.code(), detail ? detail->reason : "PROFILE_REFUSED",
        absl::StrCat("the service refused the file of the profile ",
                     QuoteName(name), ": "));
  }
  return absl::OkStatus();
}

std::string FileNameOf(absl::string_view digest) {
  return absl::StrReplaceAll(digest, {{":", "-"}});
}

}  // namespace kvcompress
