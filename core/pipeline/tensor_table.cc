// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "pipeline/tensor_table.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "absl/strings/str_cat.h"
#include "kvcompress/error.h"
#include "layout/suspicion.h"
#include "metrics/token_quality.h"
#include "pipeline/role_suggestion.h"
#include "status/macros.h"

namespace kvcompress {
namespace {

// As the parser of headers has it, so that a position in a file always fits 63
// bits.
constexpr uint64_t kMaxData = std::numeric_limits<int64_t>::max() / 2;

}  // namespace

absl::StatusOr<SafetensorsHeader> HeaderOf(
    const std::vector<TensorSpec>& tensors,
    std::vector<std::pair<std::string, std::string>> metadata,
    uint64_t max_header_bytes, Checkpoint* checkpoint) {
  SafetensorsHeader header;
  for (const auto& [key, value] : metadata) {
    if (!IsValidUtf8(key) || !IsValidUtf8(value)) {
      return MakeError(
          absl::StatusCode::kInvalidArgument,
          absl::StrCat("metadata ", QuoteName(key), " is not UTF-8"),
          {.reason = "INVALID_HEADER", .field = "tensors.metadata"});
    }
  }
  header.metadata = std::move(metadata);
  for (const TensorSpec& spec : tensors) {
    if (StopsAt(header.tensors.size(), checkpoint)) return checkpoint->status();
    if (!IsValidUtf8(spec.name) || spec.name == "__metadata__") {
      return MakeError(absl::StatusCode::kInvalidArgument,
                       "the name of a tensor is reserved or is not UTF-8",
                       {.reason = "INVALID_HEADER",
                        .tensor = spec.name,
                        .field = "tensors.tensors.name"});
    }
    KVC_ASSIGN_OR_RETURN(const uint64_t elements, ElementCount(spec));
    const uint64_t size = elements * DTypeSize(spec.dtype);
    if (size > kMaxData - header.data_size) {
      return MakeError(absl::StatusCode::kInvalidArgument,
                       "the tensors are too large together",
                       {.reason = "SHAPE_OVERFLOW", .tensor = spec.name});
    }
    SafetensorsEntry entry;
    entry.spec = spec;
    entry.begin = header.data_size;
    entry.end = entry.begin + size;
    header.data_size = entry.end;
    header.tensors.push_back(std::move(entry));
  }
  // Parsing what a file would begin with applies every rule of the format.
  const std::string raw = SerializeSafetensorsHeader(header, checkpoint);
  KVC_RETURN_IF_ERROR(StatusOf(checkpoint));
  if (raw.size() - 8 > max_header_bytes) {
    return MakeError(absl::StatusCode::kOutOfRange,
                     absl::StrCat("the table of tensors needs a header of ",
                                  raw.size() - 8, " bytes"),
                     {.reason = "HEADER_TOO_LARGE", .limit = max_header_bytes});
  }
  KVC_RETURN_IF_ERROR(
      ParseSafetensorsHeader(absl::string_view(raw).substr(8), checkpoint)
          .status());
  return header;
}

uint64_t BytesOf(const TensorSpec& spec) {
  return ElementCount(spec).value_or(0) * DTypeSize(spec.dtype);
}

absl::Status CheckTensor(const SafetensorsEntry& entry, uint64_t offset,
                         const CodecTraits& traits, uint64_t max_bytes) {
  const uint64_t size = entry.end - entry.begin;
  if (traits.streaming || size <= max_bytes) return absl::OkStatus();
  return MakeError(
      absl::StatusCode::kOutOfRange,
      absl::StrCat(traits.name, " holds a whole tensor, and this one has ",
                   size, " bytes"),
      {.reason = "TENSOR_TOO_LARGE",
       .tensor = entry.spec.name,
       .offset = offset + entry.begin,
       .limit = max_bytes});
}

absl::StatusOr<CodecSpec> CodecFor(DType dtype, const CodecSpec& codec) {
  if (codec.codec->traits().Takes(dtype)) return codec;
  return ParseCodec("lossless");
}

uint64_t EncoderMemory(const SafetensorsEntry& entry, const CodecTraits& traits,
                       bool reconstructs) {
  uint64_t measuring = TokenAccumulator::Applies(entry.spec)
                           ? TokenAccumulator::MemoryFor(entry.spec)
                           : 0;
  if (LayoutSample::Applies(entry.spec)) {
    measuring += LayoutSample::MemoryFor(entry.spec);
  }
  if (traits.streaming) return measuring;
  const uint64_t size = entry.end - entry.begin;
  // Values take what they take, however narrow the elements are.
  const uint64_t counted =
      std::max(size, 2 * (size / DTypeSize(entry.spec.dtype)));
  return measuring + traits.tensor_memory * counted + (reconstructs ? size : 0);
}

absl::Status AssignRolesTo(const RolePatterns& patterns, Checkpoint* checkpoint,
                           std::vector<SafetensorsEntry>* tensors) {
  std::vector<TensorSpec*> specs;
  specs.reserve(tensors->size());
  for (SafetensorsEntry& tensor : *tensors) specs.push_back(&tensor.spec);
  return AssignRoles(patterns, specs, checkpoint);
}

void ReportRoles(const CodecTraits& traits,
                 const std::vector<ArtefactTensor>& tensors,
                 CompressReport* report) {
  bool numbers = false;
  for (const ArtefactTensor& tensor : tensors) {
    report->roles.Add(tensor.spec.role);
    numbers |= IsNumber(tensor.spec.dtype);
  }
  const bool known = report->roles.keys + report->roles.values > 0;
  if (!traits.role_aware || !numbers || known) return;
  std::vector<absl::string_view> names;
  names.reserve(tensors.size());
  for (const ArtefactTensor& tensor : tensors) {
    names.push_back(tensor.spec.name);
  }
  const std::optional<RoleSuggestion> patterns = SuggestRoles(names);
  report->warnings.push_back(
      {.code = "NO_ROLES",
       .message = absl::StrCat(
           traits.name, " treats keys and values differently, and none of ",
           tensors.size(),
           " tensors is recognised as either, so that the result may be larger "
           "or worse than it need be; give patterns of names for keys and "
           "values (key_patterns and value_patterns, -keys and -values)",
           patterns
               ? absl::StrCat(", such as ", QuoteName(patterns->keys), " and ",
                              QuoteName(patterns->values), " for these names")
               : ""),
       .tensor = ""});
}

absl::Status CheckThresholdsMatch(const CompressOptions& options,
                                  const std::vector<ArtefactTensor>& tensors) {
  const auto check = [&](TensorRole role, absl::string_view what) {
    for (const ArtefactTensor& tensor : tensors) {
      if (tensor.spec.role == role) return absl::OkStatus();
    }
    return MakeError(
        absl::StatusCode::kInvalidArgument,
        absl::StrCat("the thresholds for ", what, "s match no tensor: none of ",
                     tensors.size(), " is recognised as ", what,
                     "s; use names such as layer_0_", what,
                     ", or give patterns of names for ", what, "s (", what,
                     "_patterns, -", what, "s)"),
        {.reason = "THRESHOLD_MATCHES_NOTHING",
         .field = absl::StrCat("options.", what, "_thresholds")});
  };
  if (options.key_thresholds) {
    KVC_RETURN_IF_ERROR(check(TensorRole::kKey, "key"));
  }
  if (options.value_thresholds) {
    KVC_RETURN_IF_ERROR(check(TensorRole::kValue, "value"));
  }
  return absl::OkStatus();
}

}  // namespace kvcompress
