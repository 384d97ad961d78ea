// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Pieces of the work of one call, done by those threads that are lent to it
// and, where fewer of these work than may, by the one that called. Nobody waits
// for a thread: who needs what nobody works on does it itself, so that calls
// that share threads never wait for each other.
// Internal to the library.

#ifndef KVCOMPRESS_PIPELINE_JOB_QUEUE_H_
#define KVCOMPRESS_PIPELINE_JOB_QUEUE_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "kvcompress/checkpoint.h"
#include "kvcompress/threads.h"
#include "tensor/workers.h"

namespace kvcompress {

// A piece of work.
class Job {
 public:
  virtual ~Job() = default;

  // Lets it begin only when another one, added earlier, is done. Where that
  // throws, this one does not run and throws the same. To be called before it
  // is added.
  void RunAfter(std::shared_ptr<Job> other) {
    after_.push_back(std::move(other));
  }

 private:
  friend class JobQueue;
  enum class State { kWaiting, kRunning, kDone };

  // Called once, by any thread, without a lock. May throw std::bad_alloc.
  virtual void Run() = 0;

  // Guarded by the mutex of the queue.
  State state_ = State::kWaiting;
  std::vector<std::shared_ptr<Job>> after_;
  std::exception_ptr error_;
};

// Not thread safe, except ForEach, which running jobs may call; pieces of their
// work come before jobs that wait.
class JobQueue : public Workers {
 public:
  // At 1 thread, whatever is added is done by those who wait for it.
  explicit JobQueue(Threads threads);
  // Jobs that have not begun never will. Waits for those that run, which
  // should look at their checkpoints every few milliseconds.
  ~JobQueue() override;

  JobQueue(const JobQueue&) = delete;
  JobQueue& operator=(const JobQueue&) = delete;

  // Adds a job, which lives as long as this or longer.
  void Add(const std::shared_ptr<Job>& job);

  bool IsDone(const Job& job) const;

  // Works until a job that was added is done; what it has made can be read
  // then. False when the checkpoint, which may be null, stops it. Throws what
  // Run threw.
  bool Wait(const std::shared_ptr<Job>& job, Checkpoint* checkpoint);

  // What a job is to look at: it stops when nobody waits for what runs, or
  // `wanted`, which may be null, says so. Thread safe.
  Checkpoint CheckpointOf(StillWanted wanted) const;

  // How many threads share one piece of work at most: as many as there are, or
  // fewer from now on, where it has not begun. Thread safe.
  size_t places() const override { return places_; }
  void set_places(size_t places) { places_ = places; }
  // From now on as at 1 thread. Before anything is added.
  void UseOneThread();
  void ForEach(size_t count, Piece piece) override {
    ForEachAt(places(), count, piece);
  }
  // The same with so many places.
  void ForEachAt(size_t places, size_t count, Piece piece);

 private:
  struct State;

  static void Help(const std::shared_ptr<State>& state);
  // Asks for helpers while there is work for `more` of them.
  static void AskForHelp(const std::shared_ptr<State>& state, size_t more);

  // Shared with tasks that threads have not run yet.
  const std::shared_ptr<State> state_;
  // Jobs read it while the call may lower it.
  std::atomic<size_t> places_;
};

// JobQueue::Wait for a job that has a status, which is returned, or that of the
// checkpoint where it stops.
template <typename AnyJob>
absl::Status WaitFor(const std::shared_ptr<AnyJob>& job, JobQueue* queue,
                     Checkpoint* checkpoint) {
  if (!queue->Wait(job, checkpoint)) return checkpoint->status();
  return job->status();
}

// The threads of a queue that share work at other places than its own: where
// tensors wait for it, as many as there are.
class Sharers final : public Workers {
 public:
  // `queue` outlives this.
  Sharers(JobQueue* queue, size_t places) : queue_(*queue), places_(places) {}

  size_t places() const override { return places_; }
  void ForEach(size_t count, Piece piece) override {
    queue_.ForEachAt(places_, count, piece);
  }

 private:
  JobQueue& queue_;
  const size_t places_;
};

// How the threads of a call work: on so many tensors at a time, on each of
// which so many share blocks.
struct ThreadPlan {
  unsigned workers = 1;
  size_t places = 1;
};

// As many tensors as there are threads and, by `more_memory`, what a plan takes
// beyond that of one thread, memory for. With `shares` threads that are left
// share blocks, and one more where there are several tensors, for the last.
ThreadPlan PlanOf(
    const Threads& threads, size_t tensors, bool shares,
    absl::FunctionRef<uint64_t(unsigned workers, size_t places)> more_memory);

// The most of `count` threads that work by a plan.
inline unsigned ThreadsOf(unsigned workers, size_t places, unsigned count) {
  return static_cast<unsigned>(
      std::min<size_t>(std::max(count, 1U), workers * places));
}

}  // namespace kvcompress

#endif  // KVCOMPRESS_PIPELINE_JOB_QUEUE_H_
