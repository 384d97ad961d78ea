// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Shell patterns of a request, held against the names of tensors within the
// limits of kvcompress/patterns.h. Patterns and names are of others' choosing,
// and nothing interrupts the work of matching them. Internal to the library.

#ifndef KVCOMPRESS_PIPELINE_PATTERNS_H_
#define KVCOMPRESS_PIPELINE_PATTERNS_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace kvcompress {

// INVALID_ARGUMENT with reason INVALID_OPTIONS for more than kMaxPatterns or
// kMaxPatternBytes. `field` is where the request has them.
absl::Status CheckPatterns(absl::Span<const std::string> patterns,
                           absl::string_view field);

struct PatternMatches {
  // For each name whether it matches one of the patterns.
  std::vector<bool> matched;
  // The first pattern that no name matches.
  std::optional<size_t> unmatched;
};

// The errors of CheckPatterns, also for more than kMaxPatternWork.
absl::StatusOr<PatternMatches> MatchPatterns(
    absl::Span<const std::string> patterns,
    absl::Span<const absl::string_view> names, absl::string_view field);

}  // namespace kvcompress

#endif  // KVCOMPRESS_PIPELINE_PATTERNS_H_
