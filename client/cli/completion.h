// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// What shells and `man` are told of kv-compress, from what -help is made of.

#ifndef KVCOMPRESS_CLIENT_CLI_COMPLETION_H_
#define KVCOMPRESS_CLIENT_CLI_COMPLETION_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace kvcompress::cli {

// The completion script of kv-compress for "bash", "zsh" or "fish": flags,
// their values where those are known, and files. INVALID_ARGUMENT for another
// shell.
absl::StatusOr<std::string> CompletionScript(absl::string_view shell);

// The manual page, in roff with the macros of man(7).
std::string ManualPage();

}  // namespace kvcompress::cli

#endif  // KVCOMPRESS_CLIENT_CLI_COMPLETION_H_
