// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// What -help prints, and what the manual page has of it.

#ifndef KVCOMPRESS_CLIENT_CLI_HELP_H_
#define KVCOMPRESS_CLIENT_CLI_HELP_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace kvcompress::cli {

// The commands, a line each.
std::string ShortUsage();

// The text of -help, or of the help of a command, which has its flags alone.
std::string Usage(absl::string_view command = "");

// How commands are left out.
std::string DescribeCommands();

// The syntax of codecs, each codec with its options and presets, and the byte
// compressors.
std::string DescribeCodecs();

// Where results go, and what is done with several files.
std::string DescribeOutputs();

// A command and what it does, for -help and the manual page.
struct Example {
  std::string command;
  std::string text;
};
std::vector<Example> Examples();

// What each exit status says.
std::string DescribeExitStatus();

}  // namespace kvcompress::cli

#endif  // KVCOMPRESS_CLIENT_CLI_HELP_H_
