// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "pipeline/role_suggestion.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_replace.h"
#include "pipeline/patterns.h"

namespace kvcompress {
namespace {

struct Words {
  absl::string_view key;
  absl::string_view value;
};
constexpr Words kWords[] = {
    {"key", "value"}, {"keys", "values"}, {"k", "v"}, {"K", "V"}, {"0", "1"}};
// Where a word may stand, for `$`. A word without a border has to be one that
// is no part of others.
constexpr absl::string_view kPlaces[] = {
    "*.$", "*_$", "*.$.*", "*_$_*", "*.$_*", "*_$.*", "$.*", "$_*", "*$*"};
constexpr absl::string_view kAnywhere = "*$*";
constexpr size_t kShortestAnywhere = 3;
constexpr size_t kTried = 64;  // names
// Of two tensors, 0 and 1 may as well be layers.
constexpr absl::string_view kNumber = "0";

// How many names the pattern for keys matches where each matches exactly one of
// the two; else nothing.
std::optional<size_t> Keys(const RoleSuggestion& patterns,
                           absl::Span<const absl::string_view> names) {
  const auto keys = MatchPatterns({patterns.keys}, names, "");
  const auto values = MatchPatterns({patterns.values}, names, "");
  if (!keys.ok() || !values.ok()) return std::nullopt;
  for (size_t i = 0; i < names.size(); ++i) {
    if (keys->matched[i] == values->matched[i]) return std::nullopt;
  }
  return std::count(keys->matched.begin(), keys->matched.end(), true);
}

}  // namespace

std::optional<RoleSuggestion> SuggestRoles(
    absl::Span<const absl::string_view> names) {
  if (names.empty() || names.size() % 2 != 0) return std::nullopt;
  const auto few = names.subspan(0, kTried);
  for (const Words& words : kWords) {
    if (words.key == kNumber && names.size() == 2) continue;
    for (const absl::string_view place : kPlaces) {
      if (place == kAnywhere && words.key.size() < kShortestAnywhere) continue;
      const RoleSuggestion patterns = {
          absl::StrReplaceAll(place, {{"$", words.key}}),
          absl::StrReplaceAll(place, {{"$", words.value}})};
      if (!Keys(patterns, few)) continue;
      if (Keys(patterns, names) == names.size() / 2) return patterns;
    }
  }
  return std::nullopt;
}

}  // namespace kvcompress
