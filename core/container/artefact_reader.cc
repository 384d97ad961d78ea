// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include <iterator>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "container/keys.h"
#include "container/manifest.h"
#include "digest/digest.h"
#include "kvcompress/artefact.h"
#include "kvcompress/error.h"
#include "kvcompress/safetensors.h"
#include "kvcompress/version.h"
#include "status/macros.h"

namespace kvcompress {
namespace {

absl::Status Damaged(absl::string_view what,
                     std::optional<std::string> tensor = std::nullopt) {
  return MakeError(absl::StatusCode::kDataLoss,
                   absl::StrCat("the artefact is damaged: ", what),
                   {.reason = "HEADER_DAMAGED", .tensor = std::move(tensor)});
}

// The error for a file that does not begin as an artefact does: either it never
// was one, or its beginning is damaged.
absl::Status NotAnArtefact(absl::string_view json) {
  const absl::StatusOr<SafetensorsHeader> header = ParseSafetensorsHeader(json);
  if (!header.ok()) return Damaged(header.status().message());
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

absl::StatusOr<int> ParseVersion(absl::string_view text) {
  int version;
  if (!absl::SimpleAtoi(text, &version) || absl::StrCat(version) != text ||
      version < kMinFormatVersion) {
    return Damaged(absl::StrCat("format version ", QuoteName(text)));
  }
  if (version > kFormatVersion) {
    return MakeError(absl::StatusCode::kUnimplemented,
                     absl::StrCat("the artefact has format version ", version,
                                  "; this build reads up to ", kFormatVersion),
                     {.reason = "LATER_FORMAT",
                      .limit = static_cast<uint64_t>(kFormatVersion)});
  }
  return version;
}

// Takes the metadata apart; the keys of the format come first, in order.
absl::Status ReadMetadata(
    std::vector<std::pair<std::string, std::string>> metadata,
    ArtefactHeader* header) {
  constexpr absl::string_view kRequired[] = {kChecksumKey, kFormatKey,
                                             kLayoutKey, kTensorsKey};
  for (size_t i = 0; i < std::size(kRequired); ++i) {
    if (i >= metadata.size() || metadata[i].first != kRequired[i]) {
      return Damaged(
          absl::StrCat("metadata key ", kRequired[i], " is not in its place"));
    }
  }
  header->checksum = metadata[0].second;
  KVC_ASSIGN_OR_RETURN(header->format_version,
                       ParseVersion(metadata[1].second));
  if (metadata[2].second != kLayout) return Damaged("unknown layout");
  absl::StatusOr<std::vector<ArtefactTensor>> tensors =
      ParseManifest(metadata[3].second);
  if (!tensors.ok()) {
    // The checksum held, so an unknown codec is a later one.
    if (tensors.status().code() == absl::StatusCode::kUnimplemented) {
      return tensors.status();
    }
    return Damaged(tensors.status().message());
  }
  header->tensors = *std::move(tensors);

  for (size_t i = std::size(kRequired); i < metadata.size(); ++i) {
    auto& [key, value] = metadata[i];
    if (!IsReservedMetadataKey(key)) {
      header->metadata.push_back(std::move(metadata[i]));
      continue;
    }
    absl::string_view label = key;
    if (!absl::ConsumePrefix(&label, kLabelPrefix) ||
        !header->metadata.empty()) {
      return Damaged(
          absl::StrCat("metadata key ", QuoteName(key), " is out of place"));
    }
    header->labels.emplace(label, std::move(value));
  }
  if (absl::Status status = ValidateLabels(header->labels); !status.ok()) {
    return Damaged(status.message());
  }
  return absl::OkStatus();
}

// Joins the manifest with the names and sizes of the safetensors header.
absl::Status JoinTensors(const SafetensorsHeader& file,
                         ArtefactHeader* header) {
  if (file.tensors.size() != header->tensors.size()) {
    return Damaged(absl::StrCat("the manifest lists ", header->tensors.size(),
                                " tensors, the header ", file.tensors.size()));
  }
  uint64_t decoded_size = 0;
  for (size_t i = 0; i < file.tensors.size(); ++i) {
    const SafetensorsEntry& entry = file.tensors[i];
    ArtefactTensor& tensor = header->tensors[i];
    tensor.spec.name = entry.spec.name;
    tensor.payload_size = entry.end - entry.begin;
    const CodecSpec& codec = tensor.codec;
    const absl::StatusOr<uint64_t> elements = ElementCount(tensor.spec);
    if (!elements.ok()) {
      return Damaged(elements.status().message(), tensor.spec.name);
    }
    const absl::StatusOr<uint64_t> most =
        codec.codec->MaxEncodedSize(tensor.spec, codec.parameters);
    if (!most.ok()) return Damaged(most.status().message(), tensor.spec.name);
    if (entry.spec.dtype != DType::kU8 || entry.spec.shape.size() != 1 ||
        tensor.payload_size > *most ||
        (codec.codec->traits().fixed_size && tensor.payload_size != *most)) {
      return Damaged("the payload's type or size is not the codec's",
                     tensor.spec.name);
    }
    constexpr uint64_t kMost = std::numeric_limits<int64_t>::max() / 2;
    const uint64_t size = *elements * DTypeSize(tensor.spec.dtype);
    if (size > kMost - decoded_size) {
      return Damaged("the tensors are too large together", tensor.spec.name);
    }
    decoded_size += size;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ArtefactHeader> ParseArtefactHeader(absl::string_view raw) {
  const absl::string_view json = raw.size() > 8 ? raw.substr(8) : "";
  if (!absl::StartsWith(json, kFixedBeginning) ||
      raw.size() < kChecksumOffset + kDigestDigits) {
    return NotAnArtefact(json);
  }
  KVC_RETURN_IF_ERROR(VerifyChecksum(raw));
  absl::StatusOr<SafetensorsHeader> file = ParseSafetensorsHeader(json);
  if (!file.ok()) return Damaged(file.status().message());
  ArtefactHeader header;
  KVC_RETURN_IF_ERROR(ReadMetadata(std::move(file->metadata), &header));
  KVC_RETURN_IF_ERROR(JoinTensors(*file, &header));
  return header;
}

}  // namespace kvcompress
