// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "pipeline/group_fit.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "codecs/auto/auto.h"
#include "codecs/klt/klt.h"
#include "codecs/lossless/lossless.h"
#include "kvcompress/error.h"
#include "kvcompress/nearest_name.h"
#include "profile/residuals.h"
#include "status/macros.h"

namespace kvcompress {
namespace {

absl::Status InvalidProfileOption(absl::string_view what,
                                  absl::string_view reason) {
  return MakeError(absl::StatusCode::kInvalidArgument, what,
                   {.reason = std::string(reason), .field = "options.profile"});
}

bool IsExact(const CodecSpec& codec) { return codec.codec == &LosslessCodec(); }

// The tensors that the codec of the request is for.
TensorPlaces PlacesFor(const CodecSpec& codec, const ArtefactHeader& header) {
  return PlacesOf(header.tensors, [&codec](const ArtefactTensor& tensor) {
    if (IsExact(codec)) return tensor.codec.codec == codec.codec;
    return tensor.codec.codec == &KltCodec() ||
           tensor.codec.codec == &AutoCodec();
  });
}

// The name of the preset of a request that names none: `contract`, or else that
// with the smallest step.
std::string DefaultPresetOf(const Profile& profile) {
  const std::vector<ProfilePreset>& presets = profile.content().presets;
  const auto mildest =
      std::min_element(presets.begin(), presets.end(),
                       [](const ProfilePreset& a, const ProfilePreset& b) {
                         return a.step < b.step;
                       });
  if (profile.FindPreset(kContractPreset) || mildest == presets.end()) {
    return std::string(kContractPreset);
  }
  return mildest->name;
}

// Whether the other options go together with a profile.
absl::Status CheckGoTogether(const CompressOptions& options,
                             const CodecSpec& codec,
                             const ArtefactHeader& header) {
  absl::string_view wrong;
  if (codec.codec != &KltCodec() && codec.codec != &AutoCodec() &&
      !IsExact(codec)) {
    wrong =
        "a profile goes with klt, such as klt:ultra, with auto and with "
        "lossless alone";
  } else if (!header.laid_out.empty() && options.reconstruct) {
    wrong =
        "a layout, a profile and reconstruction cannot be combined: leave out "
        "one of them";
  } else if (!options.attention.empty()) {
    wrong = "attention weights and a profile cannot be combined";
  }
  return wrong.empty() ? absl::OkStatus()
                       : InvalidProfileOption(wrong, "INVALID_OPTIONS");
}

std::vector<FittingProfile> FindFitting(
    absl::Span<const std::shared_ptr<const Profile>> candidates,
    const CodecSpec& codec, absl::string_view preset,
    const ArtefactHeader& header) {
  std::vector<FittingProfile> fitting;
  if (candidates.empty()) return fitting;
  const TensorPlaces places = PlacesFor(codec, header);
  for (const std::shared_ptr<const Profile>& profile : candidates) {
    const std::optional<size_t> index = profile->FindPreset(preset);
    if (!index) continue;
    std::vector<TensorGroup> groups =
        FindGroups(profile->content(), header.tensors, places, false);
    if (groups.empty()) continue;
    fitting.push_back({profile, *index, std::move(groups)});
  }
  return fitting;
}

Warning AmbiguousProfiles() {
  return {"PROFILE_AMBIGUOUS",
          "several profiles fit the cache, and none was used: name one of them "
          "by name or digest",
          ""};
}

}  // namespace

std::optional<Warning> UnusualRate(const ProfilePreset& preset, uint64_t values,
                                   uint64_t bytes) {
  // So many times the bytes that a profile expects are unusual. Kinds of text
  // that it was not trained on, and that it suits, took up to 1.19 times as
  // many, and one that it does not suit 1.23 (docs/codecs/klt-profile.md).
  constexpr double kUnusual = 1.2;
  const double ratio =
      2 * static_cast<double>(values) / static_cast<double>(bytes);
  const double more = preset.expected->ratio / ratio;
  if (more < kUnusual) return std::nullopt;
  return Warning{
      "PROFILE_UNUSUAL",
      absl::StrCat(
          "the cache takes ", absl::StrFormat("%.0f", 100 * (more - 1)),
          " % more bytes than those that the profile was measured on: its text "
          "is of another kind, and the damage to the model may be larger than "
          "the profile says. A milder preset, or a profile that was trained on "
          "such text too, costs less"),
      ""};
}

TensorPlaces PlacesOf(
    absl::Span<const ArtefactTensor> tensors,
    const std::function<bool(const ArtefactTensor&)>& may_take) {
  TensorPlaces places;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorSpec& spec = tensors[i].spec;
    if (!may_take(tensors[i]) || !spec.layer) continue;
    places.emplace(std::pair(spec.role, *spec.layer), i);
  }
  return places;
}

std::vector<TensorGroup> FindGroups(const ProfileContent& content,
                                    absl::Span<const ArtefactTensor> tensors,
                                    const TensorPlaces& places, bool exact) {
  std::vector<TensorGroup> groups;
  for (size_t g = 0; g < content.groups.size(); ++g) {
    TensorGroup group{.index = g};
    group.shape.exact = exact;
    bool fits = true;
    for (const ProfileTensor& member : content.groups[g].tensors) {
      const auto place = places.find(std::pair(member.role, member.layer));
      profile::GroupShape shape;
      fits = place != places.end() &&
             (!exact ||
              profile::TakesResiduals(tensors[place->second].spec.dtype)) &&
             profile::Fits(member, tensors[place->second].spec, &shape) &&
             (group.members.empty() || (shape.batches == group.shape.batches &&
                                        shape.tokens == group.shape.tokens));
      if (!fits) break;
      group.shape.batches = shape.batches;
      group.shape.tokens = shape.tokens;
      group.shape.dtypes.push_back(tensors[place->second].spec.dtype);
      group.members.push_back(place->second);
    }
    if (!fits) continue;
    const auto [first, last] =
        std::minmax_element(group.members.begin(), group.members.end());
    group.first = *first;
    group.last = *last;
    groups.push_back(std::move(group));
  }
  return groups;
}

std::string CodecOf(const CompressOptions& options) {
  if (options.codec != KltCodec().traits().name || options.profile == nullptr) {
    return options.codec;
  }
  const std::string preset = DefaultPresetOf(*options.profile);
  return preset == kContractPreset ? options.codec
                                   : absl::StrCat(options.codec, ":", preset);
}

absl::StatusOr<FittingProfile> ChooseProfile(const CompressOptions& options,
                                             const CodecSpec& codec,
                                             const ArtefactHeader& header,
                                             std::vector<Warning>* warnings) {
  const absl::Status together = CheckGoTogether(options, codec, header);
  absl::string_view name =
      codec.codec == &AutoCodec() ? kContractPreset : codec.parameters.text();
  if (options.profile == nullptr) {
    // What is lossless needs no profile unless one is named: it would be lost
    // with it.
    if (!together.ok() || IsExact(codec)) return FittingProfile();
    std::vector<FittingProfile> fitting =
        FindFitting(options.candidate_profiles, codec, name, header);
    if (fitting.size() > 1) warnings->push_back(AmbiguousProfiles());
    return fitting.size() == 1 ? std::move(fitting[0]) : FittingProfile();
  }
  KVC_RETURN_IF_ERROR(together);
  const ProfileContent& content = options.profile->content();
  const std::string own = DefaultPresetOf(*options.profile);
  if (IsExact(codec)) name = own;
  const std::optional<size_t> preset = options.profile->FindPreset(name);
  if (!preset) {
    std::vector<std::string> names;
    for (const ProfilePreset& each : content.presets) {
      names.push_back(each.name);
    }
    const bool is_auto = codec.codec == &AutoCodec();
    return InvalidProfileOption(
        absl::StrCat(is_auto ? "auto needs the preset of a profile that keeps "
                               "bounds: "
                             : "",
                     "the profile has no preset ", QuoteName(name),
                     "; it has: ", absl::StrJoin(names, ", "),
                     is_auto ? "; leave the profile out, or name klt with one "
                               "of its presets"
                             : DidYouMean(name, names)),
        "UNKNOWN_PRESET");
  }
  std::vector<TensorGroup> groups = FindGroups(
      content, header.tensors, PlacesFor(codec, header), IsExact(codec));
  if (groups.empty()) {
    return InvalidProfileOption(
        absl::StrCat("no group of the profile ", options.profile->id().digest,
                     " for ", QuoteName(options.profile->id().label),
                     " has all of its tensors in the cache, in its shapes",
                     IsExact(codec) ? " and of type F16 or BF16" : ""),
        "PROFILE_MISMATCH");
  }
  return FittingProfile{options.profile, *preset, std::move(groups)};
}

}  // namespace kvcompress
