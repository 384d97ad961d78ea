// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The flags of the command bench.

#ifndef KVCOMPRESS_CLIENT_CLI_BENCH_FLAGS_H_
#define KVCOMPRESS_CLIENT_CLI_BENCH_FLAGS_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "client/cli/flags.h"
#include "client/cli/raw_flags.h"

namespace kvcompress::cli {

// The largest cache of a call, in bytes: this process holds it and an artefact
// of it in memory.
inline constexpr uint64_t kMaxBenchCache = uint64_t{1} << 30;
// The most bytes of caches that all calls at a time may be of.
inline constexpr uint64_t kMaxBytesInFlight = uint64_t{8} << 30;
inline constexpr size_t kMaxConcurrency = 256;

// Sets the file to send, where one is named. INVALID_ARGUMENT for several, and
// for an output.
absl::Status SetBenchFile(const RawFlags& raw, Flags* flags);

// Sets all else of kBench; without -codec the codec that compresses by default.
// The mode and flags->codecs are set. INVALID_ARGUMENT where these flags are
// given in another mode.
absl::Status SetBench(const RawFlags& raw, Flags* flags);

// INVALID_ARGUMENT where as many calls at a time as `flags` ask for, each of a
// cache of `cache_size` bytes, are above kMaxBytesInFlight.
absl::Status CheckBytesInFlight(const Flags& flags, uint64_t cache_size);

}  // namespace kvcompress::cli

#endif  // KVCOMPRESS_CLIENT_CLI_BENCH_FLAGS_H_
