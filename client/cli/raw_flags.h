// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The flags as they stand on the command line: which there are, and their text.

#ifndef KVCOMPRESS_CLIENT_CLI_RAW_FLAGS_H_
#define KVCOMPRESS_CLIENT_CLI_RAW_FLAGS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace kvcompress::cli {

// A flag that is given may still be empty, where its type is optional.
struct RawFlags {
  std::string command;  // before all flags; empty for none
  std::string input, server, shared_directory, codec, preset, last_stage;
  std::string tls_ca, tls_cert, tls_key;
  std::optional<std::string> output, group_size, sparsity, min_snr_db, progress,
      tokens, order;
  std::optional<std::string> thresholds, key_thresholds, value_thresholds;
  std::optional<std::string> block_tokens;
  std::optional<std::string> rope_theta, rope, model_config, effort, metrics,
      layout, threads;
  std::optional<std::string> info, verify, compare, format, completion;
  std::optional<std::string> concurrency, size, seconds;
  std::vector<std::string> keys, values, tensors, labels;
  std::string profile;
  std::optional<std::string> train_profile, model_label, profile_layers,
      profile_components, train_metric, train_basis, train_presets, train_note;
  std::vector<std::string> files;  // arguments that are no flags
  bool decompress = false, metrics_only = false, verbose = false;
  bool quiet = false, force = false, json = false, train_contract = false;
  bool bench = false;  // has no flag: a command alone sets it
  bool help = false, version = false, man = false;
};

// A flag, as -help, the manual page and the completions describe it.
struct FlagDescription {
  std::string name;        // without dashes
  std::string short_name;  // one letter that means the same; may be empty
  std::string group;       // what it is for, with others of its kind
  std::string type;        // such as FILE; empty for one that stands alone
  std::string text;
  std::string environment;  // the variable that sets it too; may be empty
  // All values that it takes, or the usual ones; empty where they are open.
  std::vector<std::string> values;
};

// A command (subcommands.h) sets what its flag would, and a command line with
// no other flags than the Go program's has what that program did by default.
// INVALID_ARGUMENT for what does not follow the syntax.
absl::StatusOr<RawFlags> ParseRawFlags(
    const std::vector<std::string>& arguments);

// Every flag, in the order of -help.
std::vector<FlagDescription> DescribeFlags();

}  // namespace kvcompress::cli

#endif  // KVCOMPRESS_CLIENT_CLI_RAW_FLAGS_H_
