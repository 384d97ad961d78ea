// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Threads for what takes time, so that those of gRPC, of which there are few,
// are free to take calls, to refuse them and to answer probes.

#ifndef KVCOMPRESS_SERVER_WORKER_POOL_H_
#define KVCOMPRESS_SERVER_WORKER_POOL_H_

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace kvcompress {

// Runs tasks in the order in which they come, as many at once as there are
// threads. Thread safe.
class WorkerPool {
 public:
  // `threads` is at least 1.
  explicit WorkerPool(unsigned threads);
  // Runs what has come, then ends. REQUIRES: nothing more comes.
  ~WorkerPool();

  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // Has a thread run `task`, which throws nothing. Nobody waits: how many tasks
  // there may be is for the caller to bound.
  void Run(std::function<void()> task);

  // One for each processor that this process may use.
  static unsigned Processors();

 private:
  void Work();

  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by the mutex.
  bool ending_ = false;
  std::deque<std::function<void()>> tasks_;
  std::vector<std::thread> threads_;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_WORKER_POOL_H_
