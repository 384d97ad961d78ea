// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// What a config.json of Hugging Face's transformers, of version 4 or 5, says of
// a model's rotary position embedding.

#ifndef KVCOMPRESS_CLIENT_CLI_MODEL_CONFIG_H_
#define KVCOMPRESS_CLIENT_CLI_MODEL_CONFIG_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kvcompress/v1/rope.pb.h"

namespace kvcompress::cli {

// Parses the text of a config.json, or a part of it that has the fields on the
// embedding. INVALID_ARGUMENT for what is no JSON, says nothing on it, or has
// frequencies that depend on the length of a prompt.
absl::StatusOr<v1::RopeParameters> ParseModelConfig(absl::string_view text);

// The same of a file.
absl::StatusOr<v1::RopeParameters> ReadModelConfig(const std::string& path);

}  // namespace kvcompress::cli

#endif  // KVCOMPRESS_CLIENT_CLI_MODEL_CONFIG_H_
