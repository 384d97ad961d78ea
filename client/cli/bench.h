// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// `kv-compress bench`: the speed of a server under load.

#ifndef KVCOMPRESS_CLIENT_CLI_BENCH_H_
#define KVCOMPRESS_CLIENT_CLI_BENCH_H_

#include <nlohmann/json_fwd.hpp>

#include "absl/status/statusor.h"
#include "client/cli/flags.h"

namespace kvcompress::cli {

// Sends one cache, flags.input or a generated one, to the server of `flags`
// again and again: with each codec, with each concurrency, in both directions.
// Each call is a stream of gRPC on a connection that no other call uses at the
// time, and what comes back is checked as always, compared with the first
// result by its digest, and dropped. So this process holds the cache and one
// artefact, however many calls there are at a time.
//
// A warm-up call of each direction comes first, unmeasured. A codec that fails
// there has "error" instead of measurements; calls that fail later are counted.
// The error of the first codec where all fail in the warm-up.
absl::StatusOr<nlohmann::ordered_json> MeasureServer(const Flags& flags);

}  // namespace kvcompress::cli

#endif  // KVCOMPRESS_CLIENT_CLI_BENCH_H_
