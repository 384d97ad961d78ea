// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// `kv-compress -train-profile`: caches in, a profile out, in this process.

#ifndef KVCOMPRESS_CLIENT_CLI_TRAIN_H_
#define KVCOMPRESS_CLIENT_CLI_TRAIN_H_

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "client/cli/flags.h"
#include "kvcompress/profile.h"

namespace kvcompress::cli {

// Trains from flags.files and writes flags.output; what was written.
absl::StatusOr<nlohmann::ordered_json> Train(const Flags& flags);

// What was written, for people; `path` is where. Groups, and of each preset
// what the training measured.
std::string ProfileTable(const std::string& path,
                         const nlohmann::ordered_json& json);

// Reads a profile file. Errors name it.
absl::StatusOr<std::shared_ptr<const Profile>> ReadProfile(
    const std::string& path);

}  // namespace kvcompress::cli

#endif  // KVCOMPRESS_CLIENT_CLI_TRAIN_H_
