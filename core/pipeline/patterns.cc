// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "pipeline/patterns.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "kvcompress/error.h"
#include "kvcompress/patterns.h"
#include "pipeline/glob.h"
#include "status/macros.h"

namespace kvcompress {
namespace {

absl::Status TooMuch(absl::string_view message, uint64_t limit,
                     absl::string_view field) {
  return MakeError(absl::StatusCode::kInvalidArgument, message,
                   {.reason = "INVALID_OPTIONS",
                    .limit = limit,
                    .field = std::string(field)});
}

absl::Status CheckWork(const Globs& globs, uint64_t name_bytes,
                       absl::string_view field) {
  if (name_bytes == 0 || globs.words() <= kMaxPatternWork / name_bytes) {
    return absl::OkStatus();
  }
  return TooMuch(
      absl::StrCat("patterns with wildcards that take ", globs.words(),
                   " words of 64 bits are too many for names of ", name_bytes,
                   " bytes in all; name tensors without wildcards"),
      kMaxPatternWork / name_bytes, field);
}

}  // namespace

absl::Status CheckPatterns(absl::Span<const std::string> patterns,
                           absl::string_view field) {
  if (patterns.size() > kMaxPatterns) {
    return TooMuch(absl::StrCat(patterns.size(), " patterns are too many"),
                   kMaxPatterns, field);
  }
  uint64_t bytes = 0;
  for (const std::string& each : patterns) bytes += each.size();
  if (bytes > kMaxPatternBytes) {
    return TooMuch(absl::StrCat(bytes, " bytes of patterns are too many"),
                   kMaxPatternBytes, field);
  }
  return absl::OkStatus();
}

absl::StatusOr<PatternMatches> MatchPatterns(
    absl::Span<const std::string> patterns,
    absl::Span<const absl::string_view> names, absl::string_view field) {
  KVC_RETURN_IF_ERROR(CheckPatterns(patterns, field));
  size_t longest = 0;
  uint64_t name_bytes = 0;
  for (const absl::string_view name : names) {
    longest = std::max(longest, name.size());
    name_bytes += name.size();
  }
  Globs globs(patterns, longest);
  KVC_RETURN_IF_ERROR(CheckWork(globs, name_bytes, field));
  PatternMatches result{.matched = globs.Match(names), .unmatched = {}};
  result.unmatched = globs.Unmatched();
  return result;
}

}  // namespace kvcompress
