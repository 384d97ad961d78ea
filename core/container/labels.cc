// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include <cstddef>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "container/keys.h"
#include "kvcompress/artefact.h"
#include "kvcompress/error.h"
#include "kvcompress/safetensors.h"

namespace kvcompress {
namespace {

absl::Status InvalidLabel(absl::string_view message, size_t limit) {
  return MakeError(
      absl::StatusCode::kInvalidArgument, message,
      {.reason = "INVALID_LABEL", .limit = limit, .field = "options.labels"});
}

bool IsKeyCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '.' || c == '-';
}

}  // namespace

absl::Status ValidateLabels(const Labels& labels) {
  if (labels.size() > kMaxLabels) {
    return InvalidLabel(absl::StrCat("there are ", labels.size(), " labels"),
                        kMaxLabels);
  }
  for (const auto& [key, value] : labels) {
    bool valid = !key.empty() && key.size() <= kMaxLabelKeyBytes;
    for (char c : key) valid = valid && IsKeyCharacter(c);
    if (!valid) {
      return InvalidLabel(absl::StrCat("label key ", QuoteName(key),
                                       " does not match [a-z0-9_.-]{1,64}"),
                          kMaxLabelKeyBytes);
    }
    if (value.size() > kMaxLabelValueBytes || !IsValidUtf8(value)) {
      return InvalidLabel(absl::StrCat("the value of label ", QuoteName(key),
                                       " is too long or is not UTF-8"),
                          kMaxLabelValueBytes);
    }
  }
  return absl::OkStatus();
}

bool IsReservedMetadataKey(absl::string_view key) {
  return absl::StartsWith(key, kReservedPrefix);
}

}  // namespace kvcompress
