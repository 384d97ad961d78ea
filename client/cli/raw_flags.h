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
  std::optional<std::string> group_size, sparsity, min_snr_db, progress, tokens;
  std::optional<std::string> thresholds, key_thresholds, value_thresholds;
  std::optional<std::string> rope_theta, rope, model_config, effort, layout,
      threads;
  std::optional<std::string> info, verify;
  std::vector<std::string> keys, values, tensors, labels;
  std::string profile;
  std::optional<std::string> train_profile, model_label, profile_layers,
      profile_directions, train_metric, train_basis, train_presets, train_note;
  std::vector<std::string> files;  // behind all flags
  bool decompress = false, metrics_only = false, verbose = false;
  bool help = false, version = false;
};

// INVALID_ARGUMENT for what does not follow the syntax.
absl::StatusOr<RawFlags> ParseRawFlags(
    const std::vector<std::string>& arguments);

}  // namespace kvcompress::cli

#endif  // KVCOMPRESS_CLIENT_CLI_RAW_FLAGS_H_
