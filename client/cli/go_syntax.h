// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The syntax of Go's flag package, rewritten into the one that CLI11 reads.

#ifndef KVCOMPRESS_CLIENT_CLI_GO_SYNTAX_H_
#define KVCOMPRESS_CLIENT_CLI_GO_SYNTAX_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace kvcompress::cli {

struct FlagSyntax {
  // What the flag means when it stands alone. Not set: the next argument is its
  // value, whatever it looks like.
  std::optional<std::string> bare;
  // Values that the next argument may hold, of a flag that may stand alone.
  std::vector<std::string> choices;
};

// Rewrites every flag as two arguments, "--name" and its value, and one of a
// single letter as "-n" and its value. Arguments that are no flags go to
// `*rest`, and so does all that follows "--". The errors are
// those of Go: "flag provided but not defined: -x", which names the flag that
// was meant where one is near, and "flag needs an argument: -x".
absl::StatusOr<std::vector<std::string>> FromGoSyntax(
    const std::vector<std::string>& arguments,
    const std::map<std::string, FlagSyntax>& flags,
    std::vector<std::string>* rest);

}  // namespace kvcompress::cli

#endif  // KVCOMPRESS_CLIENT_CLI_GO_SYNTAX_H_
