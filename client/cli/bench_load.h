// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Calls from several threads at a time, and what they took.

#ifndef KVCOMPRESS_CLIENT_CLI_BENCH_LOAD_H_
#define KVCOMPRESS_CLIENT_CLI_BENCH_LOAD_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"

namespace kvcompress::cli {

struct LoadResult {
  // How long each call took that succeeded, in increasing order.
  std::vector<absl::Duration> latencies;
  // How many calls failed, by the name of their code, and the first error of
  // any.
  std::map<std::string, uint64_t> failures;
  absl::Status first_error;
  // From the begin of the first call to the end of the last one.
  absl::Duration elapsed;
  // Processor time of this process meanwhile, user and system.
  absl::Duration cpu;

  uint64_t failed_calls() const;
};

// Calls `call` from `threads` threads, with their numbers from 0, again and
// again for `duration`. Each calls at least once, and no call is broken off.
// After a call that failed its thread waits for a moment: a server that refuses
// calls is not flooded.
LoadResult RunLoad(size_t threads, absl::Duration duration,
                   absl::FunctionRef<absl::Status(size_t)> call);

// The least latency that `percent` percent of all calls did not exceed (nearest
// rank). Nothing where there are none.
std::optional<absl::Duration> Percentile(
    const std::vector<absl::Duration>& sorted, int percent);

}  // namespace kvcompress::cli

#endif  // KVCOMPRESS_CLIENT_CLI_BENCH_LOAD_H_
