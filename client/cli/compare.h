// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// `kv-compress -compare`: one cache, several codecs.

#ifndef KVCOMPRESS_CLIENT_CLI_COMPARE_H_
#define KVCOMPRESS_CLIENT_CLI_COMPARE_H_

#include <nlohmann/json_fwd.hpp>

#include "absl/status/statusor.h"
#include "client/cli/file_commands.h"
#include "client/cli/flags.h"
#include "client/cli/service_connection.h"

namespace kvcompress::cli {

// Compresses and restores task.input with each codec of flags.codecs, or with
// every codec and preset that the service has and, where a profile is given,
// with its presets too. Writes nothing. Of each codec: sizes, quality, how many
// tensors hold the bounds that `flags` set (the default thresholds where it
// sets none), and megabytes of tensor data a second as this client sees them,
// the best of up to kMaxRuns runs. A codec that fails has "error" instead.
//
// INVALID_ARGUMENT for an input that is no regular file, which cannot be read
// again; the error of the first codec where all fail.
absl::StatusOr<nlohmann::ordered_json> CompareCodecs(
    const Flags& flags, const FileTask& task, const ServiceConnection& service);

// Whether a codec failed.
bool HasError(const nlohmann::ordered_json& comparison);

// The row that holds the bounds on every tensor of every file with the fewest
// bytes; null for none.
nlohmann::ordered_json SmallestWithinBounds(const nlohmann::ordered_json& rows);

// Short runs are repeated, at most so often.
inline constexpr int kMaxRuns = 5;

}  // namespace kvcompress::cli

#endif  // KVCOMPRESS_CLIENT_CLI_COMPARE_H_
