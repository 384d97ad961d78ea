// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "container/manifest.h"

#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "digest/digest.h"
#include "kvcompress/error.h"

namespace kvcompress {
namespace {

constexpr absl::string_view kScalar = "-";

std::string RoleField(const TensorSpec& spec) {
  std::string field = "-";
  if (spec.role == TensorRole::kKey) field = "k";
  if (spec.role == TensorRole::kValue) field = "v";
  if (spec.layer) absl::StrAppend(&field, *spec.layer);
  return field;
}

// A decimal number as StrCat writes it.
std::optional<uint64_t> ParseDecimal(absl::string_view text, uint64_t most) {
  if (text.empty() || (text.size() > 1 && text[0] == '0')) return std::nullopt;
  uint64_t value = 0;
  for (char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    const uint64_t digit = static_cast<uint64_t>(c - '0');
    if (value > (most - digit) / 10) return std::nullopt;
    value = value * 10 + digit;
  }
  return value;
}

absl::Status BadEntry(const std::string& tensor, absl::string_view what) {
  return MakeError(absl::StatusCode::kInvalidArgument,
                   absl::StrCat("the manifest's entry has a bad ", what),
                   {.reason = "INVALID_MANIFEST", .tensor = tensor});
}

bool ParseShape(absl::string_view text, std::vector<uint64_t>* shape) {
  if (text == kScalar) return true;
  for (absl::string_view part : absl::StrSplit(text, 'x')) {
    const std::optional<uint64_t> dimension =
        ParseDecimal(part, std::numeric_limits<int64_t>::max());
    if (!dimension) return false;
    shape->push_back(*dimension);
  }
  return true;
}

bool ParseRole(absl::string_view text, TensorSpec* spec) {
  if (text.empty()) return false;
  switch (text[0]) {
    case 'k':
      spec->role = TensorRole::kKey;
      break;
    case 'v':
      spec->role = TensorRole::kValue;
      break;
    case '-':
      break;
    default:
      return false;
  }
  if (text.size() == 1) return true;
  const std::optional<uint64_t> layer =
      ParseDecimal(text.substr(1), std::numeric_limits<uint32_t>::max());
  if (layer) spec->layer = static_cast<uint32_t>(*layer);
  return layer.has_value();
}

bool IsDigest(absl::string_view text) {
  return text.size() == kDigestDigits &&
         text.find_first_not_of("0123456789abcdef") == absl::string_view::npos;
}

}  // namespace

std::string SerializeManifest(const std::vector<ArtefactTensor>& tensors) {
  return absl::StrJoin(
      tensors, ";", [](std::string* out, const ArtefactTensor& tensor) {
        absl::StrAppend(out, tensor.codec.ManifestField(), " ",
                        DTypeName(tensor.spec.dtype), " ",
                        tensor.spec.shape.empty()
                            ? std::string(kScalar)
                            : absl::StrJoin(tensor.spec.shape, "x"),
                        " ", RoleField(tensor.spec), " ",
                        tensor.digest.empty() ? kNoDigest : tensor.digest);
      });
}

absl::StatusOr<std::vector<ArtefactTensor>> ParseManifest(
    absl::string_view text, absl::Span<const SafetensorsEntry> entries) {
  std::vector<absl::string_view> texts;
  if (!text.empty()) texts = absl::StrSplit(text, ';');
  if (texts.size() != entries.size()) {
    return MakeError(absl::StatusCode::kInvalidArgument,
                     absl::StrCat("the manifest lists ", texts.size(),
                                  " tensors, the header ", entries.size()),
                     {.reason = "INVALID_MANIFEST"});
  }
  std::vector<ArtefactTensor> tensors;
  // Of the tensor before, which is likely to have the same.
  absl::string_view codec_field;
  CodecSpec codec;
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::string& name = entries[i].spec.name;
    const std::vector<absl::string_view> fields = absl::StrSplit(texts[i], ' ');
    if (fields.size() != 5) return BadEntry(name, "number of fields");
    ArtefactTensor tensor;
    tensor.spec.name = name;
    if (i == 0 || codec_field != fields[0]) {
      const absl::StatusOr<CodecSpec> parsed = ParseManifestField(fields[0]);
      if (!parsed.ok()) {
        return MakeError(absl::StatusCode::kUnimplemented,
                         parsed.status().message(),
                         {.reason = "UNKNOWN_CODEC", .tensor = name});
      }
      codec = *parsed;
      codec_field = fields[0];
    }
    tensor.codec = codec;
    const std::optional<DType> dtype = DTypeFromName(fields[1]);
    if (!dtype || !tensor.codec.codec->traits().Takes(*dtype)) {
      return BadEntry(name, "dtype");
    }
    tensor.spec.dtype = *dtype;
    if (!ParseShape(fields[2], &tensor.spec.shape)) {
      return BadEntry(name, "shape");
    }
    if (!ParseRole(fields[3], &tensor.spec)) return BadEntry(name, "role");
    if (!IsDigest(fields[4])) return BadEntry(name, "digest");
    tensor.digest = std::string(fields[4]);
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

}  // namespace kvcompress
