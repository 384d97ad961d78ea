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
  std::string input, output, server, shared_directory, codec, preset,
      last_stage;
  std::string tls_ca, tls_cert, tls_key;
  std::optional<std::string> group_size, sparsity, min_snr_db, progress, tokens,
      order;
  std::optional<std::string> thresholds, key_thresholds, value_thresholds;
  std::optional<std::string> rope_theta, rope, model_config, effort, metrics,
      layout, threads;
  std::optional<std::string> info, verify, compare, format, completion;
  std::vector<std::string> keys, values, tensors, labels;
  std::string profile;
  std::optional<std::string> train_profile, model_label, profile_layers,
      profile_components, train_metric, train_basis, train_presets, train_note;
  std::vector<std::string> files;  // arguments that are no flags
  bool decompress = false, metrics_only = false, verbose = false;
  bool quiet = false, force = false, train_contract = false;
  bool help = false, version = false, man = false;
  // Whether nothing is on the command line but flags of the Go program.
  bool seed_invocation = false;
};

// A flag, as -help, the manual page and the completions describe it.
struct FlagDescription {
  std::string name;  // without dashes
  std::string type;  // such as FILE; empty for one that stands alone
  std::string text;
  std::string environment;  // the variable that sets it too; may be empty
  // All values that it takes, or the usual ones; empty where they are open.
  std::vector<std::string> values;
};

// INVALID_ARGUMENT for what does not follow the syntax.
absl::StatusOr<RawFlags> ParseRawFlags(
    const std::vector<std::string>& arguments);

// Every flag, in the order of -help.
std::vector<FlagDescription> DescribeFlags();

// What -help says behind the flags: the syntax of codecs, each codec with its
// options and presets, and the byte compressors.
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

#endif  // KVCOMPRESS_CLIENT_CLI_RAW_FLAGS_H_
