// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Pieces of the work of one call, done by the thread that called and by those
// lent to it. Nobody waits for a thread: who needs what is not begun yet does
// it itself, so that calls that share threads never wait for each other.
// Internal to the library.

#ifndef KVCOMPRESS_PIPELINE_JOB_QUEUE_H_
#define KVCOMPRESS_PIPELINE_JOB_QUEUE_H_

#include <exception>
#include <memory>
#include <utility>

#include "kvcompress/checkpoint.h"
#include "kvcompress/threads.h"

namespace kvcompress {

// A piece of work.
class Job {
 public:
  virtual ~Job() = default;

  // Lets it begin only when another one, added earlier, is done. To be called
  // before it is added.
  void RunAfter(std::shared_ptr<Job> other) { after_ = std::move(other); }

 private:
  friend class JobQueue;
  enum class State { kWaiting, kRunning, kDone };

  // Called once, by any thread, without a lock. May throw std::bad_alloc.
  virtual void Run() = 0;

  // Guarded by the mutex of the queue.
  State state_ = State::kWaiting;
  std::shared_ptr<Job> after_;
  std::exception_ptr error_;
};

// Used by one thread: that of the call, or one after the other.
class JobQueue {
 public:
  // At 1 thread, whatever is added is done by those who wait for it.
  explicit JobQueue(Threads threads);
  // Jobs that have not begun never will. Waits for those that run, which
  // should look at abandoned() every few milliseconds.
  ~JobQueue();

  JobQueue(const JobQueue&) = delete;
  JobQueue& operator=(const JobQueue&) = delete;

  // Adds a job, which lives as long as this or longer.
  void Add(const std::shared_ptr<Job>& job);

  bool IsDone(const Job& job) const;

  // Works until a job that was added is done; what it has made can be read
  // then. False when the checkpoint, which may be null, stops it. Throws what
  // Run threw.
  bool Wait(const std::shared_ptr<Job>& job, Checkpoint* checkpoint);

  // Whether nobody waits for what runs. Thread safe.
  bool abandoned() const;

 private:
  struct State;

  static void Help(const std::shared_ptr<State>& state);

  // Shared with tasks that threads have not run yet.
  const std::shared_ptr<State> state_;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_PIPELINE_JOB_QUEUE_H_
