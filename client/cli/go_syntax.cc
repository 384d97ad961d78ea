// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "client/cli/go_syntax.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kvcompress/nearest_name.h"

namespace kvcompress::cli {
namespace {

// "; did you mean -output?", or nothing.
std::string Suggestion(absl::string_view name,
                       const std::map<std::string, FlagSyntax>& flags) {
  std::vector<std::string> names;
  for (const auto& [flag, syntax] : flags) names.push_back(flag);
  const std::string nearest = NearestName(name, names);
  return nearest.empty() ? "" : absl::StrCat("; did you mean -", nearest, "?");
}

}  // namespace

absl::StatusOr<std::vector<std::string>> FromGoSyntax(
    const std::vector<std::string>& arguments,
    const std::map<std::string, FlagSyntax>& flags,
    std::vector<std::string>* rest) {
  std::vector<std::string> result;
  for (size_t i = 0; i < arguments.size(); ++i) {
    absl::string_view text = arguments[i];
    if (text == "--") {
      rest->insert(rest->end(),
                   arguments.begin() + static_cast<ptrdiff_t>(i) + 1,
                   arguments.end());
      break;
    }
    if (text.size() < 2 || text[0] != '-') {
      rest->push_back(arguments[i]);
      continue;
    }
    text.remove_prefix(absl::StartsWith(text, "--") ? 2 : 1);
    const size_t equals = text.find('=');
    const std::string name(text.substr(0, equals));
    const auto flag = flags.find(name);
    if (flag == flags.end()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "flag provided but not defined: -", name, Suggestion(name, flags)));
    }
    const FlagSyntax& syntax = flag->second;
    const bool has_next = i + 1 < arguments.size();
    std::string value;
    if (equals != absl::string_view::npos) {
      value = std::string(text.substr(equals + 1));
    } else if (!syntax.bare) {
      if (!has_next) {
        return absl::InvalidArgumentError(
            absl::StrCat("flag needs an argument: -", name));
      }
      value = arguments[++i];
    } else if (has_next && std::count(syntax.choices.begin(),
                                      syntax.choices.end(), arguments[i + 1])) {
      value = arguments[++i];
    } else {
      value = *syntax.bare;
    }
    result.push_back(absl::StrCat(name.size() == 1 ? "-" : "--", name));
    result.push_back(std::move(value));
  }
  return result;
}

}  // namespace kvcompress::cli
