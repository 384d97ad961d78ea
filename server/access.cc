// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "access.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "kvcompress/error.h"

namespace kvcompress {
namespace {

// Whether a name is what it reads like for everybody: the path of a URI has no
// segment that is empty or made of dots, and no other way to write one.
bool IsPlain(absl::string_view identity) {
  if (identity.find_first_of("%\\") != absl::string_view::npos) return false;
  const size_t scheme = identity.find("://");
  if (scheme != absl::string_view::npos) identity.remove_prefix(scheme + 3);
  absl::ConsumeSuffix(&identity, "/");
  for (const absl::string_view segment : absl::StrSplit(identity, '/')) {
    if (segment.empty() || segment == "." || segment == "..") return false;
  }
  return true;
}

absl::Status NoRule(absl::string_view rule, absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat(QuoteName(rule), " is not METHODS=IDENTITY: ", why));
}

}  // namespace

absl::Status AccessRules::Add(absl::string_view rule) {
  const size_t equals = rule.find('=');
  if (equals == absl::string_view::npos) return NoRule(rule, "it has no '='");
  Rule added;
  for (const absl::string_view name :
       absl::StrSplit(rule.substr(0, equals), '+')) {
    bool known = false;
    for (int i = 0; i < kMethodCount; ++i) {
      if (name != "*" && name != MethodName(static_cast<Method>(i))) continue;
      added.methods.set(i);
      known = true;
    }
    if (!known) {
      return NoRule(rule, absl::StrCat("unknown method ", QuoteName(name)));
    }
  }
  absl::string_view identity = rule.substr(equals + 1);
  if (identity.empty()) return NoRule(rule, "the identity is empty");
  added.is_prefix = absl::ConsumeSuffix(&identity, "*");
  if (absl::StrContains(identity, '*')) {
    return NoRule(rule, "'*' is allowed only at the end");
  }
  added.identity = std::string(identity);
  rules_.push_back(std::move(added));
  return absl::OkStatus();
}

absl::Status AccessRules::Check(
    Method method, absl::Span<const std::string> identities) const {
  if (rules_.empty()) return absl::OkStatus();
  for (const Rule& rule : rules_) {
    if (!rule.methods.test(static_cast<size_t>(method))) continue;
    const bool anybody = rule.is_prefix && rule.identity.empty();
    const bool named = std::any_of(
        identities.begin(), identities.end(), [&](const std::string& identity) {
          return rule.is_prefix ? absl::StartsWith(identity, rule.identity) &&
                                      IsPlain(identity)
                                : identity == rule.identity;
        });
    if (anybody || named) return absl::OkStatus();
  }
  return MakeError(
      absl::StatusCode::kPermissionDenied,
      absl::StrCat("this client may not call ", MethodName(method)),
      {.reason = "METHOD_NOT_ALLOWED"});
}

}  // namespace kvcompress
