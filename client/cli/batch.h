// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Several files in one command.

#ifndef KVCOMPRESS_CLIENT_CLI_BATCH_H_
#define KVCOMPRESS_CLIENT_CLI_BATCH_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/cli/file_commands.h"
#include "client/cli/flags.h"

namespace kvcompress::cli {

// Whether `flags` name several files, a folder, or one file and a folder for
// its result: then each file has a line in the result.
bool IsBatch(const Flags& flags);

// "a.kvc.safetensors" for "a.safetensors" or "a", and back.
std::string ArtefactName(absl::string_view name);
std::string RestoredName(absl::string_view name);

// Where the result for a file goes where nothing says so: next to it,
// "a.kvc.safetensors" for "a.safetensors", and "a.restored.safetensors" for
// "a.kvc.safetensors", where the original may still be.
std::string DefaultOutput(Mode mode, const std::string& input);

struct TaskList {
  std::vector<FileTask> tasks;
  // Sentences about artefacts in folders that are not compressed again.
  std::vector<std::string> skipped;
};

// The files that `flags` name, in their order; those below folders by name. Of
// a folder those that the mode can take: artefacts end with .kvc.safetensors,
// caches with .safetensors and begin unlike an artefact. Outputs keep their
// path below the folder, or lie next to the inputs. INVALID_ARGUMENT for a
// folder without any, for standard input where its result would need a name,
// for two files with one output, and for an output that is one of the inputs.
absl::StatusOr<TaskList> ListTasks(const Flags& flags);

// Says on standard error what is skipped, but with -quiet.
void PrintSkipped(const Flags& flags, const TaskList& list);

// Runs all of them, and prints a line for each as soon as it is known. Errors
// and warnings follow a table, and come between lines of JSON; then how many
// files there were and failed. The exit status is the worst of theirs.
absl::StatusOr<int> RunBatch(const Flags& flags);

}  // namespace kvcompress::cli

#endif  // KVCOMPRESS_CLIENT_CLI_BATCH_H_
