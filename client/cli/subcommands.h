// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Commands of kv-compress, such as "compare": a word before all flags and
// files, which says what is done as a flag can.

#ifndef KVCOMPRESS_CLIENT_CLI_SUBCOMMANDS_H_
#define KVCOMPRESS_CLIENT_CLI_SUBCOMMANDS_H_

#include <array>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "client/cli/raw_flags.h"

namespace kvcompress::cli {

struct Command {
  absl::string_view name;
  absl::string_view arguments;  // behind the name
  absl::string_view text;       // what it does, in a few words
  // Names of the flags that concern it, separated by spaces, in lists that
  // commands share; besides those of every command.
  std::array<absl::string_view, 4> flags = {};
};

// What people do most comes first.
absl::Span<const Command> Commands();

// Null where `name` is none.
const Command* FindCommand(absl::string_view name);

// The flags that a command's help lists, in the order of -help.
std::vector<FlagDescription> FlagsOf(const Command& command);

// The command that `arguments` begin with, which it removes: null for none.
// INVALID_ARGUMENT for a word that is neither a file nor a command, but nearly
// the name of one.
absl::StatusOr<const Command*> TakeCommand(std::vector<std::string>* arguments);

// Makes `raw` what it were if flags said what `command` says. INVALID_ARGUMENT
// where they say something else too, and where files are missing.
absl::Status ApplyCommand(const Command& command, RawFlags* raw);

}  // namespace kvcompress::cli

#endif  // KVCOMPRESS_CLIENT_CLI_SUBCOMMANDS_H_
