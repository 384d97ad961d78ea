// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "container/keys.h"
#include "container/manifest.h"
#include "digest/digest.h"
#include "kvcompress/artefact.h"
#include "kvcompress/error.h"
#include "kvcompress/profile.h"
#include "kvcompress/safetensors.h"
#include "kvcompress/version.h"
#include "status/macros.h"

namespace kvcompress {
namespace {

constexpr absl::string_view kPrefix = "the artefact is damaged: ";
constexpr absl::string_view kReason = "HEADER_DAMAGED";

absl::Status Damaged(absl::string_view what,
                     std::optional<std::string> tensor = std::nullopt) {
  return MakeError(
      absl::StatusCode::kDataLoss, absl::StrCat(kPrefix, what),
      {.reason = std::string(kReason), .tensor = std::move(tensor)});
}

// The same for a rule that another part of the library found broken.
absl::Status Damaged(const absl::Status& cause) {
  return Reclassify(cause, absl::StatusCode::kDataLoss, kReason, kPrefix);
}

// The error for a file that does not begin as an artefact does: either it never
// was one, or its beginning is damaged.
absl::Status NotAnArtefact(absl::string_view json, Checkpoint* checkpoint) {
  const absl::StatusOr<SafetensorsHeader> header =
      ParseSafetensorsHeader(json, checkpoint);
  KVC_RETURN_IF_ERROR(StatusOf(checkpoint));
  if (!header.ok()) return Damaged(header.status());
  for (const auto& [key, value] : header->metadata) {
    if (IsReservedMetadataKey(key)) {
      return Damaged("the header does not begin with its checksum");
    }
  }
  return MakeError(absl::StatusCode::kFailedPrecondition,
                   "the input is a safetensors file, but not a compressed one",
                   {.reason = "NOT_AN_ARTEFACT"});
}

absl::Status VerifyChecksum(absl::string_view raw) {
  Digest digest;
  digest.Update(raw.substr(0, kChecksumOffset));
  digest.Update(kNoDigest);
  digest.Update(raw.substr(kChecksumOffset + kDigestDigits));
  if (digest.Hex() != raw.substr(kChecksumOffset, kDigestDigits)) {
    return Damaged("the header does not match its checksum");
  }
  return absl::OkStatus();
}

// A version in decimal; one that is too long for a number is a later one.
absl::StatusOr<int> ParseVersion(absl::string_view text) {
  constexpr size_t kMaxDigits = 9;
  int version = 0;
  bool valid = !text.empty() && text[0] != '0';
  for (char c : text) valid = valid && c >= '0' && c <= '9';
  if (!valid) return Damaged(absl::StrCat("format version ", QuoteName(text)));
  if (text.size() > kMaxDigits || !absl::SimpleAtoi(text, &version) ||
      version > kFormatVersion) {
    return MakeError(
        absl::StatusCode::kUnimplemented,
        absl::StrCat("the artefact has format version ", QuoteName(text),
                     "; this build reads up to ", kFormatVersion),
        {.reason = "LATER_FORMAT",
         .limit = static_cast<uint64_t>(kFormatVersion)});
  }
  return version;
}

// The position of the keys up to the version is the same in every version.
absl::StatusOr<int> ReadVersion(const SafetensorsHeader& file) {
  if (file.metadata.size() < 2 || file.metadata[0].first != kChecksumKey ||
      file.metadata[1].first != kFormatKey) {
    return Damaged("the version is not in its place");
  }
  return ParseVersion(file.metadata[1].second);
}

absl::StatusOr<ProfileId> ParseProfileId(absl::string_view text) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits(' ', 1));
  if (!IsProfileDigest(parts.first) || parts.second.empty() ||
      parts.second.size() > kMaxProfileLabel) {
    return Damaged("the profile it names");
  }
  return ProfileId{.digest = std::string(parts.first),
                   .label = std::string(parts.second)};
}

// Takes the metadata and the manifest apart.
absl::Status ReadMetadata(const SafetensorsHeader& file, Checkpoint* checkpoint,
                          ArtefactHeader* header) {
  header->checksum = file.metadata[0].second;
  for (const auto& [key, value] : file.metadata) {
    absl::string_view label = key;
    if (key == kProfileKey) {
      KVC_ASSIGN_OR_RETURN(header->profile, ParseProfileId(value));
    } else if (absl::ConsumePrefix(&label, kLabelPrefix)) {
      header->labels.emplace(label, value);
    } else if (key == kTensorsKey) {
      const absl::Status status =
          ParseManifest(value, file.tensors, checkpoint, header);
      KVC_RETURN_IF_ERROR(StatusOf(checkpoint));
      if (status.code() == absl::StatusCode::kUnimplemented) return status;
      if (!status.ok()) return Damaged(status);
    } else if (!IsReservedMetadataKey(key)) {
      header->metadata.emplace_back(key, value);
    }
  }
  if (absl::Status status = ValidateLabels(header->labels); !status.ok()) {
    return Damaged(status);
  }
  return absl::OkStatus();
}

// Whether the sizes of payloads are those of their codecs, and what they decode
// to can be counted.
absl::Status CheckSizes(const ArtefactHeader& header, Checkpoint* checkpoint) {
  uint64_t decoded_size = 0;
  // Of tensors that share payloads.
  uint64_t shared_size = 0;
  uint64_t most_shared = 0;
  size_t checked = 0;
  for (const ArtefactTensor& tensor : header.tensors) {
    if (StopsAt(checked++, checkpoint)) return checkpoint->status();
    const CodecSpec& codec = tensor.codec;
    const absl::StatusOr<uint64_t> elements = ElementCount(tensor.spec);
    if (!elements.ok()) return Damaged(elements.status());
    constexpr uint64_t kMax = std::numeric_limits<int64_t>::max() / 2;
    const uint64_t size = *elements * DTypeSize(tensor.spec.dtype);
    if (size > kMax - decoded_size) {
      return Damaged("the tensors are too large together", tensor.spec.name);
    }
    decoded_size += size;
    const absl::StatusOr<uint64_t> most =
        codec.codec->MaxEncodedSize(tensor.spec, codec.parameters);
    if (!most.ok()) return Damaged(most.status());
    if (codec.codec->coded_in_groups()) {
      shared_size += tensor.payload_size;
      most_shared = std::min(kMax, most_shared + std::min(kMax, *most));
      continue;
    }
    if (tensor.payload_size > *most ||
        (codec.codec->traits().fixed_size && tensor.payload_size != *most)) {
      return Damaged("the payload's size is not the codec's", tensor.spec.name);
    }
  }
  if (shared_size > most_shared) {
    return Damaged("the payloads of groups are too large");
  }
  if (header.profile.has_value() != (most_shared > 0)) {
    return Damaged("it names a profile without tensors that need one, or not");
  }
  return absl::OkStatus();
}

// A header has one form only: the one that writing it again produces.
absl::Status CheckForm(absl::string_view raw, Checkpoint* checkpoint,
                       ArtefactHeader* header) {
  const absl::StatusOr<std::string> form =
      SerializeArtefactHeader(raw.size(), header, checkpoint);
  KVC_RETURN_IF_ERROR(StatusOf(checkpoint));
  if (!form.ok() || *form != raw || raw.size() % 8 != 0) {
    return Damaged("the header is not in its one form");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ArtefactHeader> ParseArtefactHeader(absl::string_view raw,
                                                   Checkpoint* checkpoint) {
  const absl::string_view json = raw.size() > 8 ? raw.substr(8) : "";
  if (!absl::StartsWith(json, kFixedBeginning) ||
      raw.size() < kChecksumOffset + kDigestDigits) {
    return NotAnArtefact(json, checkpoint);
  }
  KVC_RETURN_IF_ERROR(VerifyChecksum(raw));
  absl::StatusOr<SafetensorsHeader> file =
      ParseSafetensorsHeader(json, checkpoint);
  KVC_RETURN_IF_ERROR(StatusOf(checkpoint));
  if (!file.ok()) return Damaged(file.status());
  ArtefactHeader header;
  KVC_ASSIGN_OR_RETURN(header.format_version, ReadVersion(*file));
  KVC_RETURN_IF_ERROR(ReadMetadata(*file, checkpoint, &header));
  KVC_RETURN_IF_ERROR(CheckSizes(header, checkpoint));
  KVC_RETURN_IF_ERROR(CheckForm(raw, checkpoint, &header));
  return header;
}

}  // namespace kvcompress
