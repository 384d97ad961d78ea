// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Cuts off calls that wait too long for their client, and calls that last too
// long. One thread looks at all of them every fraction of a second. When none
// is left it has the allocator give what it keeps back to the system.

#ifndef KVCOMPRESS_SERVER_WATCHDOG_H_
#define KVCOMPRESS_SERVER_WATCHDOG_H_

#include <grpcpp/server_context.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/time/time.h"

namespace kvcompress {

class Watchdog;

// A call under watch: a state that its reactor and the watchdog change in turn.
// The reactor says when it begins to wait for its client. The watchdog may cut
// a wait off; the call then ends by EndCut, and in no other way.
class WatchedCall {
 public:
  enum class Wait : uint8_t { kNone, kRead, kWrite };

  WatchedCall(const WatchedCall&) = delete;
  WatchedCall& operator=(const WatchedCall&) = delete;

 protected:
  // Under watch from now on. Both outlive the call.
  WatchedCall(Watchdog* watchdog, grpc::CallbackServerContext* context);
  virtual ~WatchedCall();

  // Call it before the operation is started.
  void BeginWait(Wait wait);
  // Call it when the operation is done. False when the call was cut off:
  // nothing of it may be touched any more.
  bool EndWait();
  // DEADLINE_EXCEEDED once the call has lasted too long.
  absl::Status CheckTime() const;

 private:
  friend class Watchdog;

  // Finishes the call with `status`, after which nothing of it may be touched.
  // Called at most once, instead of an EndWait that returns true.
  virtual void EndCut(const absl::Status& status) = 0;

  void CutOff(Wait wait, absl::Status status);
  void EndCutWrite();

  Watchdog* const watchdog_;
  grpc::CallbackServerContext* const context_;
  const int64_t begin_;  // milliseconds, of a steady clock
  // The wait, whether it was cut off, and when it began: one word, so that no
  // later wait is taken for an earlier one.
  std::atomic<uint64_t> state_ = 0;
  // Why a write was cut off; and whether either of the two that end it came.
  absl::Status cut_;
  std::atomic<bool> write_over_ = false;
};

// Thread safe. REQUIRES: no call is under watch any more when it is destroyed.
class Watchdog {
 public:
  struct Limits {
    // Longest wait for a client; infinite for no limit.
    absl::Duration stall = absl::InfiniteDuration();
    // Longest call; infinite for no limit.
    absl::Duration call = absl::InfiniteDuration();
  };

  explicit Watchdog(const Limits& limits);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  friend class WatchedCall;

  void Add(WatchedCall* call);
  void Remove(WatchedCall* call);
  bool Expired(const WatchedCall& call, int64_t now) const;
  void Run();
  void Look();
  // Whether no call is left, for the first time since there was one or after a
  // while: what a connection held that carried none comes free later.
  bool ShouldTrim();

  const int64_t stall_ms_;
  const int64_t call_ms_;
  std::mutex mutex_;
  std::condition_variable stop_;
  // Guarded by the mutex.
  bool stopping_ = false;
  int64_t next_trim_ = 0;  // when, if there is no call then
  absl::flat_hash_set<WatchedCall*> calls_;
  std::thread thread_;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_WATCHDOG_H_
