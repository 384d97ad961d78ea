// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "kvcompress/thread_pool.h"

#include <exception>
#include <utility>

namespace kvcompress {

ThreadPool::ThreadPool(unsigned threads) {
  threads_.reserve(threads);
  try {
    while (threads_.size() < threads) {
      threads_.emplace_back([this] { Work(); });
    }
  } catch (const std::exception&) {
    // The system gives no more threads, or no memory for one. Calls work with
    // fewer, and with none where there is none.
  }
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  woken_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  // Where there is no thread; a task may bring another.
  while (!tasks_.empty()) {
    const std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    task();
  }
}

Threads ThreadPool::Lend(unsigned count, uint64_t memory) {
  return {.count = count,
          .run =
              [this](std::function<void()> task) {
                const std::lock_guard lock(mutex_);
                tasks_.push_back(std::move(task));
                woken_.notify_one();
              },
          .memory = memory};
}

void ThreadPool::Work() {
  std::unique_lock lock(mutex_);
  while (true) {
    woken_.wait(lock, [this] { return ending_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    const std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
    lock.lock();
  }
}

}  // namespace kvcompress
