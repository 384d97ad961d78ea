// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// How much memory this process may use, as the kernel will enforce it.

#ifndef KVCOMPRESS_SERVER_MEMORY_LIMIT_H_
#define KVCOMPRESS_SERVER_MEMORY_LIMIT_H_

#include <cstdint>
#include <string>

namespace kvcompress {

// The least of the limits of the control groups (version 2 or 1) that this
// process is in, and of the machine's memory, in bytes; 0 when none of them can
// be read. `root` is where /proc and /sys are looked for: for tests.
uint64_t MemoryLimit(const std::string& root = "");

// The budget for streams under such a limit: half of what the process itself
// leaves of it, as the allocator keeps as much again; and at least a few
// streams.
uint64_t DefaultMemoryBudget(uint64_t memory_limit);

// The least limit with such a budget, in bytes.
uint64_t MemoryLimitFor(uint64_t budget);

// How much gRPC may buffer on top of such a budget, in bytes: its part of the
// streams that are let in, and of connections and streams that are refused what
// the limit leaves, up to 128 MiB.
uint64_t BufferQuota(uint64_t budget, uint64_t memory_limit);

// How many streams gRPC may hold, those that are let in among them: what half
// of its quota is enough for, and no more than could be of use.
uint64_t MostStreams(uint64_t budget, uint64_t memory_limit);

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_MEMORY_LIMIT_H_
