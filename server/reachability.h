// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Whether this server can be reached: a thread that dials every address on
// which it listens, every two seconds, as a client would.
//
// A server that no longer accepts looks healthy from within. What this finds
// decides what health says; and a server that nobody can reach, for a reason
// other than that it is full, is to be ended, so that whoever started it starts
// it again.

#ifndef KVCOMPRESS_SERVER_REACHABILITY_H_
#define KVCOMPRESS_SERVER_REACHABILITY_H_

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "address.h"

namespace kvcompress {

// Thread safe.
class Reachability {
 public:
  struct Options {
    absl::Duration interval = absl::Seconds(2);
    // Failures in a row after which the server counts as unreachable; from the
    // first on it is dialled four times as often.
    int failures = 2;
    // How long it may be so, other than by being full, before it is lost;
    // infinite for ever.
    absl::Duration lost_after = absl::Seconds(60);
  };

  struct Events {
    // Dials one address. RESOURCE_EXHAUSTED: the server is full, by its own
    // limits.
    std::function<absl::Status(const ListenAddress&)> dial;
    // It has become reachable, or unreachable for this reason.
    std::function<void(const absl::Status&)> changed;
    // It was unreachable for `lost_after`. Once.
    std::function<void()> lost;
  };

  // Begins to dial. The calls of events come from one thread, one at a time.
  Reachability(std::vector<ListenAddress> addresses, const Options& options,
               Events events);
  // Stops, see below.
  ~Reachability();
  Reachability(const Reachability&) = delete;
  Reachability& operator=(const Reachability&) = delete;

  // Dials no more, and waits for a dial under way: before the server is shut
  // down.
  void Stop();

  // Whether it was unreachable for `lost_after`.
  bool lost() const { return lost_; }

  // For liveness: false once the server is lost, or when no dial has ended for
  // 30 seconds, because the process is stuck.
  bool alive() const;

 private:
  void Run();
  // Dials every address; the first failure.
  absl::Status Look();
  void Judge(const absl::Status& status);

  const std::vector<ListenAddress> addresses_;
  const Options options_;
  const Events events_;
  std::atomic<int64_t> looked_;  // seconds since the Unix epoch
  std::atomic<bool> lost_ = false;
  std::atomic<bool> stopped_ = false;
  // For the thread alone.
  int failures_ = 0;
  bool reachable_ = true;
  absl::Time broken_since_ = absl::InfiniteFuture();
  std::mutex mutex_;
  std::condition_variable stop_;
  bool stopping_ = false;  // guarded by the mutex
  std::thread thread_;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_REACHABILITY_H_
