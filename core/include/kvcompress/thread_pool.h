// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Threads for those who have none to lend.

#ifndef KVCOMPRESS_THREAD_POOL_H_
#define KVCOMPRESS_THREAD_POOL_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <mutex>
#include <thread>
#include <vector>

#include "kvcompress/threads.h"

namespace kvcompress {

// A few threads that run tasks in the order in which they come. Thread safe.
class ThreadPool {
 public:
  // As many as the system gives, at most `threads`.
  explicit ThreadPool(unsigned threads);
  // Runs what has come. REQUIRES: nothing more comes.
  ~ThreadPool();

  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  unsigned threads() const { return static_cast<unsigned>(threads_.size()); }

  // What one call may have: `count` threads, the one that calls among them, and
  // so much memory, in bytes. This outlives the call.
  Threads Lend(unsigned count,
               uint64_t memory = std::numeric_limits<uint64_t>::max());

 private:
  void Work();

  std::mutex mutex_;
  std::condition_variable woken_;
  std::deque<std::function<void()>> tasks_;
  bool ending_ = false;  // guarded by the mutex, as are the tasks
  std::vector<std::thread> threads_;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_THREAD_POOL_H_
