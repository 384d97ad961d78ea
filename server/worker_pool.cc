// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "worker_pool.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <new>
#include <optional>
#include <utility>

#include "control_groups.h"

namespace kvcompress {

WorkerPool::WorkerPool(unsigned threads, Helpers helpers)
    : most_helpers_(helpers.most == 0 ? threads : helpers.most),
      nicer_(helpers.nicer) {
  threads_.reserve(threads);
  helpers_.reserve(most_helpers_);
  try {
    while (threads_.size() < threads) {
      threads_.emplace_back([this] { Work(); });
    }
  } catch (const std::exception&) {
    // The system gives no more threads, or no memory for one.
    if (threads_.empty()) throw;
  }
}

WorkerPool::~WorkerPool() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  work_.notify_all();
  help_.notify_all();
  work_for_added_.notify_all();
  oversee_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  for (std::thread& thread : helpers_) thread.join();
  if (overseer_.joinable()) overseer_.join();
  std::unique_lock lock(mutex_);
  while (!added_.empty()) {
    oversee_.wait(lock, [this] { return !ended_.empty(); });
    JoinEnded(&lock);
  }
  JoinEnded(&lock);
}

void WorkerPool::Run(absl::string_view client, std::function<void()> task) {
  const std::lock_guard lock(mutex_);
  Client& entry = Put(client, &Client::calls, &turns_, std::move(task))->second;
  ++waiting_;
  // Threads that were woken already are idle until they take a task.
  if (waiting_ <= idle_) work_.notify_one();
  if (entry.running == 0 && entry.calls.tasks.size() == 1) {
    BeginUnserved(&entry);
  }
}

void WorkerPool::Help(absl::string_view client, std::function<void()> task) {
  const std::lock_guard lock(mutex_);
  // The destructor joins those that there are.
  if (ending_) return;
  if (waiting_help_ >= idle_helpers_ && helpers_.size() < most_helpers_) {
    try {
      helpers_.emplace_back([this] { WorkAsHelper(); });
    } catch (const std::exception&) {
      // The next one that helps tries again.
    }
  }
  if (helpers_.empty()) return;
  Put(client, &Client::helpers, &helper_turns_, std::move(task));
  ++waiting_help_;
  if (waiting_help_ <= idle_helpers_) help_.notify_one();
}

WorkerPool::Clients::iterator WorkerPool::Put(absl::string_view client,
                                              Waiting Client::*kind,
                                              Turns* turns,
                                              std::function<void()> task) {
  auto found = clients_.find(client);
  if (found == clients_.end()) {
    found = clients_.try_emplace(std::string(client)).first;
  }
  Waiting& waiting = found->second.*kind;
  try {
    if (waiting.tasks.empty() && waiting.turn.empty()) {
      waiting.turn.push_back(found);
    }
    waiting.tasks.push_back(std::move(task));
  } catch (const std::bad_alloc&) {
    if (found->second.gone()) clients_.erase(found);
    throw;
  }
  turns->splice(turns->end(), waiting.turn);
  return found;
}

unsigned WorkerPool::threads() const {
  const std::lock_guard lock(mutex_);
  return static_cast<unsigned>(threads_.size() + helpers_.size() +
                               added_.size());
}

unsigned WorkerPool::Processors() {
  static const unsigned processors = [] {
    const unsigned all = std::max(std::thread::hardware_concurrency(), 1U);
    const std::optional<double> quota = ProcessorQuota();
    if (!quota || *quota >= all) return all;
    return static_cast<unsigned>(std::ceil(*quota));
  }();
  return processors;
}

void WorkerPool::Work() {
  std::unique_lock lock(mutex_);
  while (true) {
    ++idle_;
    work_.wait(lock, [this] { return ending_ || !turns_.empty(); });
    --idle_;
    if (turns_.empty()) return;
    RunNext(turns_.begin(), &lock);
  }
}

void WorkerPool::WorkAsHelper() {
  // On Linux that is of the thread alone. One that may not have it helps all
  // the same.
  setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)),
              getpriority(PRIO_PROCESS, 0) + nicer_);
  std::unique_lock lock(mutex_);
  while (true) {
    ++idle_helpers_;
    help_.wait(lock, [this] { return ending_ || !helper_turns_.empty(); });
    --idle_helpers_;
    if (helper_turns_.empty()) return;
    const Clients::iterator client = helper_turns_.front();
    {
      const std::function<void()> task =
          TakeNext(helper_turns_.begin(), &Client::helpers, &helper_turns_);
      --waiting_help_;
      ++client->second.helping;
      lock.unlock();
      task();
    }
    lock.lock();
    --client->second.helping;
    if (client->second.gone()) clients_.erase(client);
  }
}

void WorkerPool::WorkForUnserved(Threads::iterator thread) {
  std::unique_lock lock(mutex_);
  while (true) {
    work_for_added_.wait_for(lock, kLinger, [this] {
      return ending_ || LongestUnserved() != turns_.end();
    });
    const auto turn = LongestUnserved();
    if (turn == turns_.end()) break;
    --idle_added_;
    RunNext(turn, &lock);
    ++idle_added_;
  }
  --idle_added_;
  ended_.splice(ended_.end(), added_, thread);
  oversee_.notify_all();
}

std::function<void()> WorkerPool::TakeNext(Turns::iterator turn,
                                           Waiting Client::*kind,
                                           Turns* turns) {
  Waiting& waiting = (*turn)->second.*kind;
  waiting.turn.splice(waiting.turn.end(), *turns, turn);
  std::function<void()> task = std::move(waiting.tasks.front());
  waiting.tasks.pop_front();
  if (!waiting.tasks.empty()) turns->splice(turns->end(), waiting.turn);
  return task;
}

void WorkerPool::RunNext(Turns::iterator turn,
                         std::unique_lock<std::mutex>* lock) {
  const Clients::iterator client = *turn;
  Client& entry = client->second;
  {
    const std::function<void()> task = TakeNext(turn, &Client::calls, &turns_);
    --waiting_;
    ++entry.running;
    lock->unlock();
    task();
  }
  lock->lock();
  --entry.running;
  if (entry.running > 0) return;
  if (entry.gone()) {
    clients_.erase(client);
  } else if (entry.unserved()) {
    BeginUnserved(&entry);
  }
}

void WorkerPool::BeginUnserved(Client* client) {
  client->unserved_since = Clock::now();
  if (waiting_ <= idle_) return;
  work_for_added_.notify_one();
  StartOverseer();
  // Awake, it looks soon enough: no other was unserved for less long.
  if (overseer_sleeps_) oversee_.notify_all();
}

WorkerPool::Turns::iterator WorkerPool::LongestUnserved() {
  auto longest = turns_.end();
  for (auto turn = turns_.begin(); turn != turns_.end(); ++turn) {
    const Client& client = (*turn)->second;
    if (client.unserved() &&
        (longest == turns_.end() ||
         client.unserved_since < (*longest)->second.unserved_since)) {
      longest = turn;
    }
  }
  return longest;
}

// Its thread is there only once somebody had to wait.
void WorkerPool::StartOverseer() {
  if (ending_ || overseer_.joinable()) return;
  try {
    overseer_ = std::thread([this] { Oversee(); });
  } catch (const std::exception&) {
    // The next one who waits tries again.
  }
}

bool WorkerPool::AddThread() {
  Threads added;
  try {
    added.emplace_back();
    added.front() = std::thread(
        [this, thread = added.begin()] { WorkForUnserved(thread); });
  } catch (const std::exception&) {
    return false;
  }
  added_.splice(added_.end(), added);
  // Until it takes a task.
  ++idle_added_;
  return true;
}

void WorkerPool::JoinEnded(std::unique_lock<std::mutex>* lock) {
  Threads ended;
  ended.swap(ended_);
  lock->unlock();
  for (std::thread& thread : ended) thread.join();
  lock->lock();
}

void WorkerPool::Oversee() {
  std::unique_lock lock(mutex_);
  while (!ending_) {
    if (!ended_.empty()) JoinEnded(&lock);
    const Clock::time_point now = Clock::now();
    uint64_t overdue = 0;
    Clock::time_point next = Clock::time_point::max();
    for (const auto client : turns_) {
      if (!client->second.unserved()) continue;
      const Clock::time_point due = client->second.unserved_since + kPatience;
      due <= now ? void(++overdue) : void(next = std::min(next, due));
    }
    while (overdue > idle_added_ &&
           threads_.size() + added_.size() < kMaxThreads && AddThread()) {
    }
    if (overdue > 0) {
      work_for_added_.notify_all();
      next = std::min(next, now + kPatience);
    }
    if (ending_) return;
    if (next != Clock::time_point::max()) {
      oversee_.wait_until(lock, next);
    } else {
      overseer_sleeps_ = true;
      oversee_.wait(lock);
      overseer_sleeps_ = false;
    }
  }
}

}  // namespace kvcompress
