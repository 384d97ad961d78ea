// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "environment.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "flags.h"
#include "kvcompress/error.h"
#include "kvcompress/nearest_name.h"

namespace kvcompress {
namespace {

constexpr absl::string_view kPrefix = "KVCOMPRESS_";

// Of the clients and of the tests, which may share an environment with the
// server.
constexpr absl::string_view kOfOthers[] = {
    "KVCOMPRESS_BIN_DIR", "KVCOMPRESS_GRPCURL", "KVCOMPRESS_PROFILE",
    "KVCOMPRESS_SERVER"};

// Whether Kubernetes sets it for a service: NAME_SERVICE_HOST,
// NAME_SERVICE_PORT and NAME_SERVICE_PORT_PORTNAME, NAME_PORT with a URL, and
// NAME_PORT_50051_TCP and what it begins, such as NAME_PORT_50051_TCP_PORT.
bool IsServiceLink(absl::string_view name, absl::string_view value) {
  if (absl::EndsWith(name, "_SERVICE_HOST") ||
      absl::EndsWith(name, "_SERVICE_PORT") ||
      absl::StrContains(name, "_SERVICE_PORT_")) {
    return true;
  }
  if (absl::EndsWith(name, "_PORT") && absl::StrContains(value, "://")) {
    return true;
  }
  constexpr absl::string_view kPort = "_PORT_";
  const size_t port = name.find(kPort);
  if (port == absl::string_view::npos) return false;
  const size_t digits = port + kPort.size();
  return digits < name.size() && absl::ascii_isdigit(name[digits]);
}

}  // namespace

std::vector<std::string> UnknownVariables(const char* const* variables) {
  std::vector<std::string> known = {absl::StrCat(kPrefix, "CONFIG")};
  for (const Flag& flag : AllFlags()) known.push_back(VariableName(flag));
  std::vector<std::string> warnings;
  for (; *variables != nullptr; ++variables) {
    const absl::string_view variable = *variables;
    const size_t equals = std::min(variable.find('='), variable.size());
    const absl::string_view name = variable.substr(0, equals);
    if (!absl::StartsWith(name, kPrefix) ||
        IsServiceLink(name, variable.substr(equals)) ||
        std::find(std::begin(kOfOthers), std::end(kOfOthers), name) !=
            std::end(kOfOthers) ||
        std::find(known.begin(), known.end(), name) != known.end()) {
      continue;
    }
    const std::string nearest = NearestName(name, known);
    warnings.push_back(absl::StrCat(
        "the environment variable ", QuoteName(name), " is no option",
        nearest.empty() ? "; see --help"
                        : absl::StrCat("; did you mean ", nearest, "?")));
  }
  std::sort(warnings.begin(), warnings.end());
  return warnings;
}

}  // namespace kvcompress
