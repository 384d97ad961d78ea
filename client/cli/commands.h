// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The commands of kv-compress.

#ifndef KVCOMPRESS_CLIENT_CLI_COMMANDS_H_
#define KVCOMPRESS_CLIENT_CLI_COMMANDS_H_

#include "absl/status/statusor.h"
#include "client/cli/flags.h"

namespace kvcompress::cli {

// Exit codes of the process. Scripts depend on them: never change these values.
inline constexpr int kExitOk = 0;
inline constexpr int kExitError = 1;
inline constexpr int kExitGate = 2;  // -min-snr-db did not hold

// Does what `flags` ask for and prints the result. Returns the exit code, or
// the error to print.
absl::StatusOr<int> RunCommand(const Flags& flags);

}  // namespace kvcompress::cli

#endif  // KVCOMPRESS_CLIENT_CLI_COMMANDS_H_
