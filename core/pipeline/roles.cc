// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "kvcompress/roles.h"

#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "kvcompress/error.h"
#include "pipeline/patterns.h"
#include "status/macros.h"

namespace kvcompress {
namespace {

constexpr absl::string_view kKeyField = "options.key_patterns";
constexpr absl::string_view kValueField = "options.value_patterns";

bool IsDigit(char byte) {
  return absl::ascii_isdigit(static_cast<unsigned char>(byte));
}

// The number in a name that has one alone, of at most nine digits.
std::optional<uint32_t> OnlyNumber(absl::string_view name) {
  constexpr size_t kMaxDigits = 9;
  std::optional<absl::string_view> digits;
  for (size_t begin = 0; begin < name.size(); ++begin) {
    if (!IsDigit(name[begin])) continue;
    if (digits) return std::nullopt;
    size_t end = begin;
    while (end < name.size() && IsDigit(name[end])) ++end;
    digits = name.substr(begin, end - begin);
    begin = end;
  }
  uint32_t number;
  if (!digits || digits->size() > kMaxDigits ||
      !absl::SimpleAtoi(*digits, &number)) {
    return std::nullopt;
  }
  return number;
}

// Which of the names match; none where there are no patterns.
absl::StatusOr<std::vector<bool>> Matching(
    const std::vector<std::string>& patterns,
    absl::Span<const absl::string_view> names, absl::string_view field) {
  if (patterns.empty() || names.empty()) {
    return std::vector<bool>(names.size(), false);
  }
  KVC_ASSIGN_OR_RETURN(PatternMatches matches,
                       MatchPatterns(patterns, names, field));
  if (matches.unmatched) {
    return MakeError(
        absl::StatusCode::kInvalidArgument,
        absl::StrCat("none of ", names.size(), " tensors has a name that ",
                     QuoteName(patterns[*matches.unmatched]), " matches"),
        {.reason = "ROLE_PATTERN_MATCHES_NOTHING",
         .field = std::string(field)});
  }
  return std::move(matches.matched);
}

}  // namespace

void RoleCounts::Add(TensorRole role) {
  switch (role) {
    case TensorRole::kKey:
      ++keys;
      return;
    case TensorRole::kValue:
      ++values;
      return;
    case TensorRole::kNone:
      ++neither;
  }
}

absl::Status ValidateRolePatterns(const RolePatterns& patterns) {
  KVC_RETURN_IF_ERROR(CheckPatterns(patterns.keys, kKeyField));
  return CheckPatterns(patterns.values, kValueField);
}

absl::Status AssignRoles(const RolePatterns& patterns,
                         absl::Span<TensorSpec* const> tensors,
                         Checkpoint* checkpoint) {
  std::vector<absl::string_view> names;
  names.reserve(tensors.size());
  for (const TensorSpec* tensor : tensors) names.push_back(tensor->name);
  KVC_ASSIGN_OR_RETURN(const std::vector<bool> keys,
                       Matching(patterns.keys, names, kKeyField));
  KVC_ASSIGN_OR_RETURN(const std::vector<bool> values,
                       Matching(patterns.values, names, kValueField));
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (StopsAt(i, checkpoint)) return checkpoint->status();
    TensorSpec& tensor = *tensors[i];
    if (keys[i] && values[i]) {
      return MakeError(
          absl::StatusCode::kInvalidArgument,
          "patterns for keys and patterns for values both match the tensor",
          {.reason = "ROLE_PATTERNS_CONFLICT",
           .tensor = tensor.name,
           .field = std::string(kValueField)});
    }
    const bool matched = keys[i] || values[i];
    if (matched && tensor.role == TensorRole::kNone) {
      tensor.role = keys[i] ? TensorRole::kKey : TensorRole::kValue;
    }
    InferRole(&tensor);
    if (matched && !tensor.layer) tensor.layer = OnlyNumber(tensor.name);
  }
  return absl::OkStatus();
}

absl::string_view RoleName(TensorRole role) {
  switch (role) {
    case TensorRole::kKey:
      return "key";
    case TensorRole::kValue:
      return "value";
    case TensorRole::kNone:
      break;
  }
  return "";
}

}  // namespace kvcompress
