// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Admission by memory. Every stream reserves what it may hold, before it holds
// it, from one budget; what does not fit is refused at once, so that the
// streams that were let in finish. Nobody waits inside, so nobody waits
// forever.
//
// It is fair among clients. One alone may have everything. But while another
// has been refused and is expected back, nobody's further streams get more than
// an equal part: so what ends frees memory for those who have less. The first
// stream of a client is let in wherever it fits.

#ifndef KVCOMPRESS_SERVER_ADMISSION_H_
#define KVCOMPRESS_SERVER_ADMISSION_H_

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace kvcompress {

// What a stream reserves from its start to its end, in bytes: a request and a
// response of the recommended size, each also in the form it has on the wire.
inline constexpr uint64_t kStreamBytes = 4 << 20;

// Thread safe.
class MemoryBudget {
 public:
  // 0 for no bound. `client_percent` of it, 1 to 100, is the most for one
  // client.
  explicit MemoryBudget(uint64_t bytes, int client_percent = 100)
      : limit_(bytes), client_limit_(PartOf(bytes, client_percent)) {}

  // A reservation of `from` bytes by a client becomes one of `to`. When it does
  // not fit it stays as it was: RESOURCE_EXHAUSTED, with the time after which
  // to try again (RetryDelayOf), or OUT_OF_RANGE when it would not fit if
  // nobody else were there.
  absl::Status Change(absl::string_view client, uint64_t from, uint64_t to);

  // The same for what a stream can do without: only while half of the budget
  // stays free, within an equal part, and without being waited for. False when
  // it stayed as it was.
  bool GrowIfSpare(absl::string_view client, uint64_t from, uint64_t to);

  uint64_t limit() const { return limit_; }

 private:
  // Of one client: forgotten when it holds nothing and is not expected back.
  struct Share {
    uint64_t reserved = 0;
    // Refusals, less some for each time that it was let in: what there is to
    // wait for.
    uint32_t refused = 0;
    // Until when it is expected back.
    absl::Time waits_until = absl::InfinitePast();
  };

  static uint64_t PartOf(uint64_t bytes, int percent) {
    return bytes / 100 * percent + bytes % 100 * percent / 100;
  }
  // The most that `client` may hold now. REQUIRES: the mutex.
  uint64_t FairPart(absl::string_view client, absl::Time now) const;
  absl::Status Grow(absl::string_view client, uint64_t from, uint64_t to);
  void Shrink(absl::string_view client, uint64_t bytes);
  // When `client` is to come back: soon if it is favoured, for others hold all
  // and it nothing. REQUIRES: the mutex.
  absl::Duration Turn(absl::string_view client, bool favoured, absl::Time now);

  const uint64_t limit_;
  const uint64_t client_limit_;
  std::mutex mutex_;
  // Guarded by the mutex.
  uint64_t reserved_ = 0;
  std::map<std::string, Share, std::less<>> clients_;
};

// When to try again, of a status of MemoryBudget::Change.
std::optional<absl::Duration> RetryDelayOf(const absl::Status& status);

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_ADMISSION_H_
