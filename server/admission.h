// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Admission by memory. Every stream reserves what it may hold, before it holds
// it, from one budget; what does not fit is refused at once, so that the
// streams that were let in finish. Nobody waits, so nobody waits forever.

#ifndef KVCOMPRESS_SERVER_ADMISSION_H_
#define KVCOMPRESS_SERVER_ADMISSION_H_

#include <atomic>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace kvcompress {

// What a stream reserves from its start to its end, in bytes: a request and a
// response of the recommended size, each also in the form it has on the wire.
inline constexpr uint64_t kStreamBytes = 4 << 20;

// Thread safe and lock-free.
class MemoryBudget {
 public:
  // 0 for no bound.
  explicit MemoryBudget(uint64_t bytes) : limit_(bytes) {}

  // A reservation of `from` bytes becomes one of `to`. When it does not fit it
  // stays as it was: RESOURCE_EXHAUSTED, with the time after which to try
  // again (RetryDelayOf), or OUT_OF_RANGE when no other stream is in the way.
  absl::Status Change(uint64_t from, uint64_t to);

  uint64_t limit() const { return limit_; }

 private:
  absl::Status Refuse(uint64_t bytes);

  const uint64_t limit_;
  std::atomic<uint64_t> reserved_ = 0;
  // Refusals since something was last let in.
  std::atomic<uint32_t> refused_ = 0;
};

// When to try again, of a status of MemoryBudget::Change.
std::optional<absl::Duration> RetryDelayOf(const absl::Status& status);

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_ADMISSION_H_
