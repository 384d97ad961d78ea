// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Threads: whether this process may have as many as a server needs. gRPC says
// nothing when the system gives it none, and what that thread was for is never
// done.

#ifndef KVCOMPRESS_SERVER_THREAD_RESERVE_H_
#define KVCOMPRESS_SERVER_THREAD_RESERVE_H_

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"

namespace kvcompress {

// Threads that a server on so many processors starts besides those of its
// WorkerPool, gRPC's included, and a few for later.
unsigned ThreadsOfServer(unsigned processors);

// Threads that do nothing, so that nobody else takes them.
class ThreadReserve {
 public:
  // RESOURCE_EXHAUSTED, with what to raise, when the system gives fewer.
  static absl::StatusOr<std::unique_ptr<ThreadReserve>> Take(unsigned threads);
  // Gives them back.
  ~ThreadReserve();

  ThreadReserve(const ThreadReserve&) = delete;
  ThreadReserve& operator=(const ThreadReserve&) = delete;

 private:
  ThreadReserve() = default;

  std::mutex mutex_;
  std::condition_variable over_;
  bool ending_ = false;  // guarded by the mutex
  std::vector<std::thread> threads_;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_THREAD_RESERVE_H_
