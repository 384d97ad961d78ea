// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Looks at something again and again, in a thread of its own.

#ifndef KVCOMPRESS_SERVER_PERIODIC_H_
#define KVCOMPRESS_SERVER_PERIODIC_H_

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/time/time.h"
#include "guarded.h"

namespace kvcompress {

// Calls `look` every `interval`, first after one, until it is destroyed; that
// waits for a call under way. A call that runs out of memory is given up.
class Periodic {
 public:
  Periodic(absl::Duration interval, std::function<void()> look)
      : interval_(interval),
        look_(std::move(look)),
        thread_([this] { Run(); }) {}

  ~Periodic() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    stop_.notify_all();
    thread_.join();
  }
  Periodic(const Periodic&) = delete;
  Periodic& operator=(const Periodic&) = delete;

 private:
  void Run() {
    std::unique_lock lock(mutex_);
    while (!stop_.wait_for(lock, absl::ToChronoNanoseconds(interval_),
                           [this] { return stopping_; })) {
      lock.unlock();
      Attempt(look_);
      lock.lock();
    }
  }

  const absl::Duration interval_;
  const std::function<void()> look_;
  std::mutex mutex_;
  std::condition_variable stop_;
  bool stopping_ = false;  // guarded by the mutex
  std::thread thread_;     // last: it uses the others
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_PERIODIC_H_
