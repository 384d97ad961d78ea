// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "kvcompress/profile.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "kvcompress/error.h"
#include "kvcompress/safetensors.h"
#include "profile/rules.h"
#include "profile/sha256.h"
#include "status/macros.h"

namespace kvcompress {
namespace {

constexpr absl::string_view kVersionKey = "kvcompress.profile";
constexpr absl::string_view kLabelKey = "kvcompress.profile.label";
constexpr absl::string_view kTrainingKey = "kvcompress.profile.training";
constexpr absl::string_view kPresetsKey = "kvcompress.profile.presets";
constexpr absl::string_view kRotationsKey = "kvcompress.profile.rotations";
constexpr absl::string_view kGroupsKey = "kvcompress.profile.groups";
constexpr absl::string_view kVersion = "1";
constexpr absl::string_view kInterleaved = "interleaved";
constexpr absl::string_view kHalves = "halves";
constexpr absl::string_view kDigestName = "sha256:";
constexpr size_t kDigestDigitCount = 64;

absl::Status Damaged(absl::string_view what) {
  return MakeError(absl::StatusCode::kDataLoss,
                   absl::StrCat("the profile is damaged: ", what),
                   {.reason = "PROFILE_DAMAGED"});
}

absl::Status Damaged(const absl::Status& cause) {
  return Reclassify(cause, absl::StatusCode::kDataLoss, "PROFILE_DAMAGED",
                    "the profile is damaged: ");
}

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

// Tensors of a file with their bytes, in order.
class Writer {
 public:
  template <typename T>
  void Add(std::string name, DType dtype, std::vector<uint64_t> shape,
           const std::vector<T>& values) {
    SafetensorsEntry entry;
    entry.spec.name = std::move(name);
    entry.spec.dtype = dtype;
    entry.spec.shape = std::move(shape);
    entry.begin = header.data_size;
    entry.end = entry.begin + values.size() * sizeof(T);
    header.data_size = entry.end;
    header.tensors.push_back(std::move(entry));
    data.append(reinterpret_cast<const char*>(values.data()),
                values.size() * sizeof(T));
  }

  SafetensorsHeader header;
  std::string data;
};

// Takes the tensors of a file in order.
class Reader {
 public:
  Reader(const SafetensorsHeader& header, absl::string_view data)
      : header_(header), data_(data) {}

  // Whether a tensor of this name is next.
  bool Has(absl::string_view name) const {
    return next_ < header_.tensors.size() &&
           header_.tensors[next_].spec.name == name;
  }
  bool AtEnd() const { return next_ == header_.tensors.size(); }

  // Reads all of a tensor of this name, type and rank; its shape to `*shape`.
  template <typename T>
  absl::Status Take(absl::string_view name, DType dtype, size_t rank,
                    std::vector<uint64_t>* shape, std::vector<T>* values) {
    if (!Has(name)) {
      return Damaged(absl::StrCat("tensor ", QuoteName(name), " is missing"));
    }
    const SafetensorsEntry& entry = header_.tensors[next_];
    if (entry.spec.dtype != dtype || entry.spec.shape.size() != rank) {
      return Damaged(absl::StrCat("tensor ", QuoteName(name),
                                  " has another type or rank"));
    }
    ++next_;
    const size_t size = entry.end - entry.begin;
    values->resize(size / sizeof(T));
    std::memcpy(values->data(), data_.data() + entry.begin, size);
    *shape = entry.spec.shape;
    return absl::OkStatus();
  }

 private:
  const SafetensorsHeader& header_;
  const absl::string_view data_;
  size_t next_ = 0;
};

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

absl::Status ParseMetadata(const SafetensorsHeader& header,
                           ProfileContent* content) {
  const absl::string_view keys[] = {kVersionKey, kLabelKey,     kTrainingKey,
                                    kPresetsKey, kRotationsKey, kGroupsKey};
  if (header.metadata.empty() || header.metadata[0].first != kVersionKey) {
    return MakeError(absl::StatusCode::kFailedPrecondition,
                     "the file is not a profile: its metadata does not begin "
                     "with kvcompress.profile",
                     {.reason = "NOT_A_PROFILE"});
  }
  if (header.metadata[0].second != kVersion) {
    return MakeError(absl::StatusCode::kUnimplemented,
                     absl::StrCat("the profile has version ",
                                  QuoteName(header.metadata[0].second),
                                  "; this build reads version ", kVersion),
                     {.reason = "LATER_FORMAT"});
  }
  if (header.metadata.size() != std::size(keys)) {
    return Damaged("the number of keys of its metadata");
  }
  for (size_t i = 0; i < std::size(keys); ++i) {
    if (header.metadata[i].first != keys[i]) {
      return Damaged(absl::StrCat("key ", keys[i], " is missing"));
    }
  }
  content->label = header.metadata[1].second;
  content->training = header.metadata[2].second;
  KVC_RETURN_IF_ERROR(ParsePresets(header.metadata[3].second, content));
  const std::string& rotations = header.metadata[4].second;
  if (!rotations.empty()) {
    for (const absl::string_view kind : absl::StrSplit(rotations, ',')) {
      if (content->rotations.size() == kMaxProfileRotations) {
        return Damaged("too many rotations");
      }
      content->rotations.push_back({.interleaved = kind == kInterleaved});
    }
  }
  return ParseGroups(header.metadata[5].second, content);
}

absl::Status ReadGroup(size_t index, Reader* reader, ProfileGroup* group) {
  const auto name = [&](absl::string_view part) {
    return absl::StrCat("group.", index, ".", part);
  };
  std::vector<uint64_t> shape;
  KVC_RETURN_IF_ERROR(
      reader->Take(name("means"), DType::kF32, 1, &shape, &group->means));
  KVC_RETURN_IF_ERROR(
      reader->Take(name("scales"), DType::kF32, 1, &shape, &group->scales));
  KVC_RETURN_IF_ERROR(
      reader->Take(name("decode"), DType::kI16, 2, &shape, &group->decode));
  group->directions = shape[0];
  if (shape[1] != group->channels()) {
    return Damaged("a matrix has another number of channels");
  }
  if (reader->Has(name("encode"))) {
    KVC_RETURN_IF_ERROR(
        reader->Take(name("encode"), DType::kI16, 2, &shape, &group->encode));
    KVC_RETURN_IF_ERROR(reader->Take(name("encode_scales"), DType::kF32, 1,
                                     &shape, &group->encode_scales));
  }
  return reader->Take(name("classes"), DType::kU8, 2, &shape, &group->classes);
}

}  // namespace

bool IsProfileDigest(absl::string_view text) {
  return absl::ConsumePrefix(&text, kDigestName) &&
         text.size() == kDigestDigitCount &&
         text.find_first_not_of("0123456789abcdef") == absl::string_view::npos;
}

absl::StatusOr<std::string> SerializeProfile(const ProfileContent& content) {
  KVC_RETURN_IF_ERROR(profile::CheckContent(content));
  Writer writer;
  writer.header.metadata = {
      {std::string(kVersionKey), std::string(kVersion)},
      {std::string(kLabelKey), content.label},
      {std::string(kTrainingKey), content.training},
      {std::string(kPresetsKey), PresetsText(content.presets)},
      {std::string(kRotationsKey), RotationsText(content.rotations)},
      {std::string(kGroupsKey), GroupsText(content.groups)}};
  for (size_t i = 0; i < content.rotations.size(); ++i) {
    const std::vector<uint64_t>& increments = content.rotations[i].increments;
    writer.Add(absl::StrCat("rotation.", i), DType::kU64, {increments.size()},
               increments);
  }
  for (size_t i = 0; i < content.groups.size(); ++i) {
    const ProfileGroup& group = content.groups[i];
    const auto name = [&](absl::string_view part) {
      return absl::StrCat("group.", i, ".", part);
    };
    const uint64_t channels = group.channels();
    writer.Add(name("means"), DType::kF32, {channels}, group.means);
    writer.Add(name("scales"), DType::kF32, {channels}, group.scales);
    writer.Add(name("decode"), DType::kI16, {group.directions, channels},
               group.decode);
    if (!group.encode.empty()) {
      writer.Add(name("encode"), DType::kI16, {group.directions, channels},
                 group.encode);
      writer.Add(name("encode_scales"), DType::kF32, {channels},
                 group.encode_scales);
    }
    writer.Add(name("classes"), DType::kU8,
               {content.presets.size(), group.directions}, group.classes);
  }
  return SerializeSafetensorsHeader(writer.header) + writer.data;
}

absl::StatusOr<std::shared_ptr<const Profile>> Profile::Parse(
    absl::string_view bytes) {
  if (bytes.size() > kMaxProfileBytes) {
    return MakeError(
        absl::StatusCode::kOutOfRange,
        absl::StrCat("the profile has ", bytes.size(), " bytes"),
        {.reason = "PROFILE_TOO_LARGE", .limit = kMaxProfileBytes});
  }
  SafetensorsHeaderReader header_reader(kMaxSafetensorsHeader);
  absl::string_view data = bytes;
  if (absl::Status status = header_reader.Append(&data); !status.ok()) {
    return Damaged(status);
  }
  if (!header_reader.done()) return Damaged("its header is cut short");
  const absl::StatusOr<SafetensorsHeader> header =
      ParseSafetensorsHeader(header_reader.json());
  if (!header.ok()) return Damaged(header.status());
  if (header->data_size != data.size()) {
    return Damaged("its size is not what its header says");
  }
  ProfileContent content;
  KVC_RETURN_IF_ERROR(ParseMetadata(*header, &content));
  Reader reader(*header, data);
  std::vector<uint64_t> shape;
  for (size_t i = 0; i < content.rotations.size(); ++i) {
    KVC_RETURN_IF_ERROR(reader.Take(absl::StrCat("rotation.", i), DType::kU64,
                                    1, &shape,
                                    &content.rotations[i].increments));
  }
  for (size_t i = 0; i < content.groups.size(); ++i) {
    KVC_RETURN_IF_ERROR(ReadGroup(i, &reader, &content.groups[i]));
  }
  if (!reader.AtEnd()) return Damaged("it has tensors that do not belong");
  // A profile has one form only: the one that writing it again gives.
  const absl::StatusOr<std::string> form = SerializeProfile(content);
  if (!form.ok()) return Damaged(form.status());
  if (*form != bytes) return Damaged("it is not in its one form");
  ProfileId id{.digest = absl::StrCat(kDigestName, Sha256Hex(bytes)),
               .label = content.label};
  return std::shared_ptr<const Profile>(
      new Profile(std::move(content), std::move(id), bytes.size()));
}

std::optional<Profile::Place> Profile::Find(TensorRole role,
                                            uint32_t layer) const {
  for (size_t g = 0; g < content_.groups.size(); ++g) {
    const std::vector<ProfileTensor>& tensors = content_.groups[g].tensors;
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i].role == role && tensors[i].layer == layer) {
        return Place{.group = g, .tensor = i};
      }
    }
  }
  return std::nullopt;
}

std::optional<size_t> Profile::FindPreset(absl::string_view name) const {
  for (size_t i = 0; i < content_.presets.size(); ++i) {
    if (content_.presets[i].name == name) return i;
  }
  return std::nullopt;
}

}  // namespace kvcompress
