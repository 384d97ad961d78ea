// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Cuts off calls that wait too long for their client, calls that last too long,
// and those that wait longest where there are too many. One thread looks at all
// of them every fraction of a second.

#ifndef KVCOMPRESS_SERVER_WATCHDOG_H_
#define KVCOMPRESS_SERVER_WATCHDOG_H_

#include <grpcpp/server_context.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <mutex>
#include <thread>
#include <unordered_set>

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

  // Content that has to pass, in bytes, before waits count anew: so that nobody
  // holds a call by saying little every now and then.
  static constexpr uint64_t kProgress = 4096;

  // Call it before the operation is started.
  void BeginWait(Wait wait);
  // Call it when the operation is done. False when the call was cut off:
  // nothing of it may be touched any more. Otherwise the time it took counts
  // together with that of earlier waits of its kind, until...
  bool EndWait();
  // ...this much content has come in, or has gone out. REQUIRES: no wait.
  void Moved(Wait wait, uint64_t bytes);
  // As much of these waits no longer counts. REQUIRES: no wait.
  void Forgive(Wait wait, absl::Duration time);
  // DEADLINE_EXCEEDED once the call has lasted too long.
  absl::Status CheckTime() const;
  // Under watch no longer: to be called before the call is finished, as gRPC
  // may keep what is left of it for as long as its client takes nothing.
  void Leave();
  // BeginWait(kRead) and `start`, which starts the read, where no reaction of
  // the call is under way: nothing else keeps the call alive until the read is
  // started, so it is not cut off before.
  template <typename Start>
  void BeginRead(Start start) {
    const std::lock_guard lock(StartMutex());
    BeginWait(Wait::kRead);
    start();
  }

 private:
  friend class Watchdog;

  // Not the call's own: that may be gone as soon as the read is started.
  std::mutex& StartMutex() const;

  // Finishes the call with `status`, after which nothing of it may be touched.
  // Called at most once, instead of an EndWait that returns true.
  virtual void EndCut(const absl::Status& status) = 0;

  // What has been waited for, and what has come of it.
  struct Waits {
    int64_t milliseconds = 0;
    uint64_t bytes = 0;
  };

  Waits& Of(Wait wait) { return wait == Wait::kRead ? reads_ : writes_; }
  // Why a wait was cut off.
  enum class Cause : uint8_t { kStalled, kTooLong, kDisplaced };

  void CutOff(Wait wait, Cause cause);
  void EndCutWrite();

  Watchdog* const watchdog_;
  grpc::CallbackServerContext* const context_;
  const int64_t begin_;  // milliseconds, of a steady clock
  // The wait, whether it was cut off, and when it began, the earlier by what
  // was waited before: one word, so that no later wait is taken for an earlier
  // one.
  std::atomic<uint64_t> state_ = 0;
  // Of the waits that are over. The watchdog does not look at them.
  Waits reads_;
  Waits writes_;
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
    // Most calls at a time: a further one displaces the one that has waited
    // longest for its client. Where none waits, all stay.
    size_t most = std::numeric_limits<size_t>::max();
    // Whether to make the allocator release what it keeps when no call is left.
    bool trims = false;
  };

  explicit Watchdog(const Limits& limits);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // DEADLINE_EXCEEDED when a call that began then has lasted too long.
  absl::Status CheckTime(std::chrono::steady_clock::time_point begin) const;

 private:
  friend class WatchedCall;

  void Add(WatchedCall* call);
  void Remove(WatchedCall* call);
  // Of a call that began then, both in milliseconds of the steady clock.
  bool Expired(int64_t begin, int64_t now) const;
  void Run();
  void Look();
  // Cuts off the wait that has lasted longest, if there are as many calls as
  // there may be.
  void MakeRoom();
  // Whether no call is left, for the first time since there was one or after a
  // while: what a connection held that carried none comes free later.
  bool ShouldTrim();

  const int64_t stall_ms_;
  const int64_t call_ms_;
  const size_t most_;
  const bool trims_;
  std::mutex mutex_;
  std::condition_variable stop_;
  // Guarded by the mutex.
  bool stopping_ = false;
  int64_t next_trim_ = 0;  // when, if there is no call then
  std::unordered_set<WatchedCall*> calls_;
  std::thread thread_;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_WATCHDOG_H_
