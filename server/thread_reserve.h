// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Threads: whether this process may have as many as a server needs, and that
// gRPC has all of its own before a client comes. It says nothing when the
// system gives it none, and what that thread was for is never done.

#ifndef KVCOMPRESS_SERVER_THREAD_RESERVE_H_
#define KVCOMPRESS_SERVER_THREAD_RESERVE_H_

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace kvcompress {

// Threads that a server on so many processors starts once it has workers,
// gRPC's included, and a few for later.
unsigned ThreadsBesideWorkers(unsigned processors);

// RESOURCE_EXHAUSTED, with what to raise behind `what`.
absl::Status TooFewThreads(absl::string_view what);

// Threads that do nothing, so that nobody else takes them.
class ThreadReserve {
 public:
  // TooFewThreads when the system gives fewer.
  static absl::StatusOr<std::unique_ptr<ThreadReserve>> Take(unsigned threads);
  // Releases them.
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

// Makes gRPC 1.51 start the threads that run callbacks of calls, of which it
// starts one, and others as work comes. UNAVAILABLE when it does not within
// seconds. REQUIRES: gRPC is up.
absl::Status StartThreadsOfGrpc(unsigned processors);

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_THREAD_RESERVE_H_
