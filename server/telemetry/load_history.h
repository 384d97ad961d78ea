// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// What a server did in the last five minutes, for charts.
//
// Not thread safe.

#ifndef KVCOMPRESS_SERVER_TELEMETRY_LOAD_HISTORY_H_
#define KVCOMPRESS_SERVER_TELEMETRY_LOAD_HISTORY_H_

#include <cstddef>
#include <cstdint>
#include <deque>

#include "absl/time/time.h"

namespace kvcompress {

class LoadHistory {
 public:
  static constexpr size_t kSlots = 60;
  static constexpr absl::Duration kSlotLength = absl::Seconds(5);

  struct Slot {
    uint64_t ok = 0, failed = 0;  // calls that ended
    int64_t peak_bytes = 0;       // most that were reserved at once
  };

  explicit LoadHistory(absl::Time now);

  // A call ended.
  void Handled(absl::Time now, bool ok);
  // From now on, `bytes` are reserved.
  void Reserved(absl::Time now, int64_t bytes);

  // kSlots of them, the oldest first; the last is not over yet.
  const std::deque<Slot>& Slots(absl::Time now);

 private:
  // The slot of `now`; the newest where a clock was set back.
  Slot& Current(absl::Time now);

  int64_t newest_;  // slots since the epoch
  int64_t reserved_ = 0;
  std::deque<Slot> slots_;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_TELEMETRY_LOAD_HISTORY_H_
