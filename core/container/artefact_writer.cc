// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include <utility>

#include "absl/strings/str_cat.h"
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

// The header as a safetensors reader sees it.
absl::StatusOr<SafetensorsHeader> ToSafetensors(const ArtefactHeader& header,
                                                Checkpoint* checkpoint) {
  SafetensorsHeader out;
  const auto add = [&](absl::string_view key, absl::string_view value) {
    out.metadata.emplace_back(key, value);
  };
  add(kChecksumKey, absl::StrCat(kDigestName, kNoDigest));
  add(kFormatKey, absl::StrCat(kFormatVersion));
  add(kLayoutKey, kLayout);
  KVC_ASSIGN_OR_RETURN(const std::string manifest,
                       SerializeManifest(header, checkpoint));
  add(kTensorsKey, manifest);
  if (header.profile) {
    add(kProfileKey,
        absl::StrCat(header.profile->digest, " ", header.profile->label));
  }
  for (const auto& [key, value] : header.labels) {
    add(absl::StrCat(kLabelPrefix, key), value);
  }
  for (const auto& [key, value] : header.metadata) add(key, value);
  const auto add_source = [&](const TensorSpec& spec, size_t first,
                              size_t count, const Layout*) {
    if (StopsAt(out.tensors.size(), checkpoint)) return checkpoint->status();
    uint64_t size = 0;
    for (size_t i = first; i < first + count; ++i) {
      size += header.tensors[i].payload_size;
    }
    SafetensorsEntry entry;
    entry.spec.name = spec.name;
    entry.spec.dtype = DType::kU8;
    entry.spec.shape = {size};
    entry.begin = out.data_size;
    entry.end = out.data_size + size;
    out.data_size = entry.end;
    out.tensors.push_back(std::move(entry));
    return absl::OkStatus();
  };
  KVC_RETURN_IF_ERROR(ForEachSource(header, add_source));
  return out;
}

absl::StatusOr<std::string> Serialize(const ArtefactHeader& header,
                                      Checkpoint* checkpoint) {
  KVC_ASSIGN_OR_RETURN(const SafetensorsHeader out,
                       ToSafetensors(header, checkpoint));
  std::string raw = SerializeSafetensorsHeader(out, checkpoint);
  KVC_RETURN_IF_ERROR(StatusOf(checkpoint));
  return raw;
}

}  // namespace

absl::StatusOr<uint64_t> ReservedHeaderSize(const ArtefactHeader& header,
                                            Checkpoint* checkpoint) {
  ArtefactHeader largest;
  largest.labels = header.labels;
  largest.profile = header.profile;
  largest.metadata = header.metadata;
  largest.laid_out = header.laid_out;
  largest.tensors.reserve(header.tensors.size());
  // Digits that the payload of a group may have beyond those of a tensor's
  // bound: a group has at most kMaxGroupTensors.
  constexpr uint64_t kGroupDigits = 4;
  uint64_t longer_fields = 0;
  for (const ArtefactTensor& own : header.tensors) {
    if (StopsAt(largest.tensors.size(), checkpoint)) {
      return checkpoint->status();
    }
    ArtefactTensor& tensor = largest.tensors.emplace_back(own);
    if (tensor.codec.codec->coded_in_groups()) longer_fields += kGroupDigits;
    longer_fields += tensor.codec.codec->MaxFieldSize(tensor.codec.parameters) -
                     tensor.codec.ManifestField().size();
    KVC_ASSIGN_OR_RETURN(tensor.payload_size,
                         tensor.codec.codec->MaxEncodedSize(
                             tensor.spec, tensor.codec.parameters));
  }
  KVC_ASSIGN_OR_RETURN(const std::string raw, Serialize(largest, checkpoint));
  const uint64_t size = raw.size() + (longer_fields + 7) / 8 * 8;
  if (size > 8 + kMaxSafetensorsHeader) {
    return MakeError(
        absl::StatusCode::kOutOfRange,
        absl::StrCat("the artefact would need a header of ", size, " bytes"),
        {.reason = "HEADER_TOO_LARGE", .limit = kMaxSafetensorsHeader});
  }
  return size;
}

absl::StatusOr<std::string> SerializeArtefactHeader(uint64_t reserved_size,
                                                    ArtefactHeader* header,
                                                    Checkpoint* checkpoint) {
  KVC_ASSIGN_OR_RETURN(std::string raw, Serialize(*header, checkpoint));
  if (raw.size() > reserved_size) {
    return MakeError(absl::StatusCode::kInternal,
                     "the header outgrew the space reserved for it",
                     {.reason = "INTERNAL", .limit = reserved_size});
  }
  raw.resize(reserved_size, ' ');
  uint64_t length = reserved_size - 8;
  for (size_t i = 0; i < 8; ++i, length >>= 8) {
    raw[i] = static_cast<char>(length & 0xff);
  }
  Digest digest;
  digest.Update(raw);
  const std::string digits = digest.Hex();
  raw.replace(kChecksumOffset, digits.size(), digits);
  header->checksum = absl::StrCat(kDigestName, digits);
  return raw;
}

}  // namespace kvcompress
