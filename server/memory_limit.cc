// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "memory_limit.h"

#include <algorithm>
#include <fstream>
#include <limits>

#include "absl/strings/numbers.h"
#include "admission.h"
#include "control_groups.h"

namespace kvcompress {
namespace {

// The process without streams.
constexpr uint64_t kBaseBytes = 64 << 20;
constexpr uint64_t kFewestStreams = 4;
// For what is no stream's.
constexpr uint64_t kQuotaMargin = 128 << 20;
// Of a stream in gRPC 1.51, with what is ours of a call that is refused: 12.6
// KiB were measured, and as much again is made to end it.
constexpr uint64_t kCallBytes = 32 << 10;
// Calls at a time that are no streams of caches: small ones, and those that are
// about to be refused.
constexpr uint64_t kOtherCalls = 16 << 10;

constexpr uint64_t kNone = std::numeric_limits<uint64_t>::max();

// The number in a file; kNone for "max", or for no such file.
uint64_t ReadNumber(const std::string& path) {
  std::ifstream file(path);
  std::string text;
  uint64_t number = 0;
  if (!(file >> text) || !absl::SimpleAtoi(text, &number)) return kNone;
  return number;
}

uint64_t MachineMemory(const std::string& root) {
  std::ifstream file(root + "/proc/meminfo");
  std::string word;
  uint64_t kibibytes = 0;
  while (file >> word) {
    if (word == "MemTotal:" && file >> kibibytes) return kibibytes << 10;
  }
  return kNone;
}

}  // namespace

uint64_t MemoryLimit(const std::string& root) {
  uint64_t least = MachineMemory(root);
  ForEachControlGroup(
      root, "memory", [&](const std::string& group, int version) {
        const char* const name =
            version == 2 ? "/memory.max" : "/memory.limit_in_bytes";
        least = std::min(least, ReadNumber(group + name));
      });
  return least == kNone ? 0 : least;
}

uint64_t DefaultMemoryBudget(uint64_t memory_limit) {
  const uint64_t left = memory_limit - std::min(memory_limit, kBaseBytes);
  return std::max(left / 2, kFewestStreams * kStreamBytes);
}

uint64_t MemoryLimitFor(uint64_t budget) { return kBaseBytes + 2 * budget; }

uint64_t BufferQuota(uint64_t budget, uint64_t memory_limit) {
  // Half of what streams reserve is for messages in the hands of gRPC, and the
  // other half is not.
  // What is left is shared with the allocator, which keeps about as much as it
  // has handed out.
  const uint64_t elsewhere = kBaseBytes + budget / 2;
  const uint64_t left = memory_limit - std::min(memory_limit, elsewhere);
  return std::max(budget / 4 * 3, std::min(budget + kQuotaMargin, left / 2));
}

uint64_t MostStreams(uint64_t budget, uint64_t memory_limit) {
  return std::min(BufferQuota(budget, memory_limit) / 2 / kCallBytes,
                  budget / kStreamBytes + kOtherCalls);
}

}  // namespace kvcompress
