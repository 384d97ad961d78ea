// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Patterns of names that tell keys from values where the rules for names do
// not, as a proposal: which half is which only whoever wrote them knows.
// Internal to the library.

#ifndef KVCOMPRESS_PIPELINE_ROLE_SUGGESTION_H_
#define KVCOMPRESS_PIPELINE_ROLE_SUGGESTION_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace kvcompress {

struct RoleSuggestion {
  std::string keys;
  std::string values;
};

// One pattern for keys and one for values, such that each name matches exactly
// one of them and both match as many: of pairs of words that dumps of caches
// use (key and value, k and v, 0 and 1), at places that dots and underscores
// set off. Nothing where no pair fits, or where 0 and 1 may be layers. Tries
// pairs on a few names, and takes time for all names only for a pair that fits
// those.
std::optional<RoleSuggestion> SuggestRoles(
    absl::Span<const absl::string_view> names);

}  // namespace kvcompress

#endif  // KVCOMPRESS_PIPELINE_ROLE_SUGGESTION_H_
