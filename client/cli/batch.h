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

// The files that `flags` name, in their order; those below folders by name. Of
// a folder those that the mode can take: artefacts end with .kvc.safetensors,
// caches with .safetensors. Outputs keep their path below the folder.
// INVALID_ARGUMENT for a folder without any, for standard input where its
// result would need a name, and for two files with one output.
absl::StatusOr<std::vector<FileTask>> ListTasks(const Flags& flags);

// Runs all of them, and prints a line for each as soon as it is known. The exit
// status is the worst of theirs.
absl::StatusOr<int> RunBatch(const Flags& flags);

}  // namespace kvcompress::cli

#endif  // KVCOMPRESS_CLIENT_CLI_BATCH_H_
