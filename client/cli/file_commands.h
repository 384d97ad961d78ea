// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// What is done with one file: compress, measure, restore, verify, describe.

#ifndef KVCOMPRESS_CLIENT_CLI_FILE_COMMANDS_H_
#define KVCOMPRESS_CLIENT_CLI_FILE_COMMANDS_H_

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "client/cli/flags.h"
#include "client/cli/service_connection.h"
#include "kvcompress/v1/compression_service.pb.h"

namespace kvcompress::cli {

// A file, and where its result goes.
struct FileTask {
  std::string input;   // "-" is standard input
  std::string output;  // "-" is standard output; empty where nothing is written
  std::string label;   // before the line of progress
};

// What became of a task.
struct FileResult {
  // Why it failed; then `json` is null, but for -verify, where it says what is
  // wrong with an artefact.
  absl::Status error;
  nlohmann::ordered_json json;
  bool holds_bounds = true;  // those that were asked for
  bool to_stdout = false;    // whether the output went to standard output
  // Of compression and measurement.
  std::optional<v1::CompressionReport> report;
};

// Does what flags.mode says with `task`. Files come first: a wrong path needs
// no server to be found out. Not for kTrain and kCompare.
FileResult RunFile(const Flags& flags, const FileTask& task,
                   LazyConnection* service);

}  // namespace kvcompress::cli

#endif  // KVCOMPRESS_CLIENT_CLI_FILE_COMMANDS_H_
