// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "kvcompress/profile.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "digest/digest.h"
#include "kvcompress/error.h"
#include "kvcompress/safetensors.h"
#include "profile/metadata.h"
#include "profile/rules.h"
#include "profile/sha256.h"
#include "status/macros.h"

namespace kvcompress {
namespace {

using profile::Damaged;

constexpr absl::string_view kDigestName = "sha256:";
constexpr size_t kDigestDigitCount = 64;

// Tensors of a file with their bytes, which are elsewhere, in order.
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
    data.emplace_back(reinterpret_cast<const char*>(values.data()),
                      values.size() * sizeof(T));
  }

  SafetensorsHeader header;
  std::vector<absl::string_view> data;
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
  group->components = shape[0];
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

// The one form of a profile, whose content outlives this.
absl::StatusOr<Writer> Write(const ProfileContent& content) {
  KVC_RETURN_IF_ERROR(profile::CheckContent(content));
  Writer writer;
  writer.header.metadata = profile::WriteMetadata(content);
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
    writer.Add(name("decode"), DType::kI16, {group.components, channels},
               group.decode);
    if (!group.encode.empty()) {
      writer.Add(name("encode"), DType::kI16, {group.components, channels},
                 group.encode);
      writer.Add(name("encode_scales"), DType::kF32, {channels},
                 group.encode_scales);
    }
    writer.Add(name("classes"), DType::kU8,
               {content.presets.size(), group.components}, group.classes);
  }
  return writer;
}

}  // namespace

std::string MarkOfCache(absl::string_view tensor) {
  Digest digest;
  digest.Update(tensor);
  return digest.Hex();
}

bool IsProfileDigest(absl::string_view text) {
  return absl::ConsumePrefix(&text, kDigestName) &&
         text.size() == kDigestDigitCount &&
         text.find_first_not_of("0123456789abcdef") == absl::string_view::npos;
}

absl::StatusOr<std::string> SerializeProfile(const ProfileContent& content) {
  KVC_ASSIGN_OR_RETURN(const Writer writer, Write(content));
  std::string bytes = SerializeSafetensorsHeader(writer.header);
  bytes.reserve(bytes.size() + writer.header.data_size);
  for (const absl::string_view data : writer.data)
    absl::StrAppend(&bytes, data);
  return bytes;
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
  KVC_RETURN_IF_ERROR(profile::ParseMetadata(header->metadata, &content));
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
  // A profile has one form only: the one that writing it again produces. Where
  // the headers are the same, so are the data, which have no gaps.
  const absl::StatusOr<Writer> form = Write(content);
  if (!form.ok()) return Damaged(form.status());
  const std::string raw = SerializeSafetensorsHeader(form->header);
  if (form->header.data_size != data.size() ||
      raw != bytes.substr(0, bytes.size() - data.size())) {
    return Damaged("it is not in its one form");
  }
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
