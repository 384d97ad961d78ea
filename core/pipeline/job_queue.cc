// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "pipeline/job_queue.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <new>

namespace kvcompress {
namespace {

// How often one that waits looks at its checkpoint.
constexpr std::chrono::milliseconds kGlance{5};

}  // namespace

struct JobQueue::State {
  using Jobs = std::deque<std::shared_ptr<Job>>;

  explicit State(Threads lent) : threads(std::move(lent)) {}

  static bool IsReady(const Job& job) {
    return job.state_ == Job::State::kWaiting &&
           (job.after_ == nullptr || job.after_->state_ == Job::State::kDone);
  }

  // The following need the mutex.

  // Takes `wanted` if it can begin, else the first that can; null for none.
  std::shared_ptr<Job> TakeReady(const Job* wanted) {
    auto found = waiting.end();
    for (auto i = waiting.begin(); i != waiting.end(); ++i) {
      if (!IsReady(**i)) continue;
      if (found == waiting.end()) found = i;
      if (i->get() != wanted) continue;
      found = i;
      break;
    }
    if (found == waiting.end()) return nullptr;
    std::shared_ptr<Job> job = std::move(*found);
    waiting.erase(found);
    job->state_ = Job::State::kRunning;
    return job;
  }

  bool has_ready() const {
    return std::any_of(waiting.begin(), waiting.end(),
                       [](const auto& job) { return IsReady(*job); });
  }

  // Runs a job that was taken, without the lock.
  void RunTaken(Job* job, std::unique_lock<std::mutex>* lock) {
    ++running;
    lock->unlock();
    std::exception_ptr error;
    try {
      job->Run();
    } catch (...) {
      error = std::current_exception();
    }
    lock->lock();
    --running;
    job->state_ = Job::State::kDone;
    job->after_.reset();
    job->error_ = std::move(error);
    done.notify_all();
  }

  const Threads threads;
  std::atomic<bool> abandoned{false};
  mutable std::mutex mutex;
  std::condition_variable done;
  // Guarded by the mutex.
  Jobs waiting;
  unsigned helpers = 0;  // tasks that were given to threads
  unsigned running = 0;  // jobs
};

JobQueue::JobQueue(Threads threads)
    : state_(std::make_shared<State>(std::move(threads))) {}

JobQueue::~JobQueue() {
  std::unique_lock<std::mutex> lock(state_->mutex);
  state_->abandoned = true;
  state_->waiting.clear();
  state_->done.wait(lock, [this] { return state_->running == 0; });
}

void JobQueue::Add(const std::shared_ptr<Job>& job) {
  {
    const std::unique_lock<std::mutex> lock(state_->mutex);
    state_->waiting.push_back(job);
    if (state_->helpers + 1 >= state_->threads.count) return;
    ++state_->helpers;
  }
  try {
    state_->threads.run([state = state_] { Help(state); });
  } catch (const std::bad_alloc&) {
    // It is done without help.
    const std::unique_lock<std::mutex> lock(state_->mutex);
    --state_->helpers;
  }
}

bool JobQueue::IsDone(const Job& job) const {
  const std::unique_lock<std::mutex> lock(state_->mutex);
  return job.state_ == Job::State::kDone;
}

bool JobQueue::Wait(const std::shared_ptr<Job>& job, Checkpoint* checkpoint) {
  std::unique_lock<std::mutex> lock(state_->mutex);
  while (job->state_ != Job::State::kDone) {
    if (const std::shared_ptr<Job> taken = state_->TakeReady(job.get())) {
      state_->RunTaken(taken.get(), &lock);
      continue;
    }
    state_->done.wait_for(lock, kGlance);
    lock.unlock();
    if (Stops(checkpoint)) return false;
    lock.lock();
  }
  if (job->error_ != nullptr) std::rethrow_exception(job->error_);
  return true;
}

bool JobQueue::abandoned() const { return state_->abandoned; }

// One job, and then another turn, so that others have theirs.
void JobQueue::Help(const std::shared_ptr<State>& state) {
  std::unique_lock<std::mutex> lock(state->mutex);
  if (const std::shared_ptr<Job> taken = state->TakeReady(nullptr)) {
    state->RunTaken(taken.get(), &lock);
  }
  if (!state->has_ready()) {
    --state->helpers;
    return;
  }
  lock.unlock();
  try {
    state->threads.run([state] { Help(state); });
  } catch (const std::bad_alloc&) {
    lock.lock();
    --state->helpers;
  }
}

}  // namespace kvcompress
