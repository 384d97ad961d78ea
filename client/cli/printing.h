// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Where results are printed, in which form, and what the process then exits
// with.

#ifndef KVCOMPRESS_CLIENT_CLI_PRINTING_H_
#define KVCOMPRESS_CLIENT_CLI_PRINTING_H_

#include <cstdio>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "client/cli/file_commands.h"
#include "client/cli/flags.h"

namespace kvcompress::cli {

// Whether a result that goes to `file` is a table.
bool PrintsTable(const Flags& flags, std::FILE* file);

// Writes all of it, at once. Where nobody reads standard output any more, the
// process ends without a message (EndByClosedPipe).
absl::Status PrintText(absl::string_view text, std::FILE* file);

// What standard error says of one of several files.
std::string ErrorLine(const FileTask& task, const absl::Status& error);

int ExitStatus(const FileResult& result);

// The exit status of both together: an error before a missed bound.
int Worse(int a, int b);

}  // namespace kvcompress::cli

#endif  // KVCOMPRESS_CLIENT_CLI_PRINTING_H_
