// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "pipeline/job_queue.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <new>
#include <vector>

namespace kvcompress {
namespace {

// How often one that waits looks at its checkpoint.
constexpr std::chrono::milliseconds kGlance{5};
// After how long one that helps has another turn, so that others have theirs.
constexpr std::chrono::milliseconds kStint{2};

}  // namespace

struct JobQueue::State {
  using Jobs = std::deque<std::shared_ptr<Job>>;

  // As many helpers as there are threads, for the one that calls may be
  // elsewhere: it reads what comes next, or has ended its turn until that has
  // come.
  explicit State(Threads lent)
      : threads(std::move(lent)),
        most_helpers(threads.count > 1 ? threads.count : 0) {}

  // Pieces of work that threads share.
  struct Loop {
    Loop(size_t its_count, size_t places, Workers::Piece its_piece)
        : count(its_count), piece(its_piece), taken(places) {}

    // For one that helps; the first place is not for these.
    bool has_room() const {
      return next < count &&
             std::find(taken.begin() + 1, taken.end(), false) != taken.end();
    }

    const size_t count;
    const Workers::Piece piece;
    size_t next = 0;
    size_t working = 0;       // threads
    std::vector<bool> taken;  // the places
    std::exception_ptr error;
  };

  static bool IsReady(const Job& job) {
    return job.state_ == Job::State::kWaiting &&
           std::all_of(job.after_.begin(), job.after_.end(),
                       [](const std::shared_ptr<Job>& other) {
                         return other->state_ == Job::State::kDone;
                       });
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

  Loop* FindLoop() const {
    const auto found = std::find_if(loops.begin(), loops.end(), [](Loop* loop) {
      return loop->has_room();
    });
    return found == loops.end() ? nullptr : *found;
  }

  bool has_ready() const {
    return FindLoop() != nullptr ||
           std::any_of(waiting.begin(), waiting.end(),
                       [](const auto& job) { return IsReady(*job); });
  }

  // Does pieces of a loop until none is left to begin or, but for the one whose
  // loop it is, kStint is over; without the lock. REQUIRES: it has a free slot.
  void Share(Loop* loop, bool own, std::unique_lock<std::mutex>* lock) {
    const auto free =
        own ? loop->taken.begin()
            : std::find(loop->taken.begin() + 1, loop->taken.end(), false);
    const auto place = static_cast<size_t>(free - loop->taken.begin());
    *free = true;
    ++loop->working;
    if (!own) ++sharing;
    const auto end = std::chrono::steady_clock::now() + kStint;
    do {
      const size_t index = loop->next++;
      lock->unlock();
      std::exception_ptr error;
      try {
        loop->piece(index, place);
      } catch (...) {
        error = std::current_exception();
      }
      lock->lock();
      if (error != nullptr) {
        loop->error = std::move(error);
        loop->next = loop->count;
      }
    } while (loop->next < loop->count &&
             (own || std::chrono::steady_clock::now() < end));
    loop->taken[place] = false;
    --loop->working;
    if (!own) --sharing;
    done.notify_all();
  }

  // How many jobs can begin since this one is done.
  size_t CountFreedBy(const Job& job) const {
    return static_cast<size_t>(std::count_if(
        waiting.begin(), waiting.end(), [&job](const auto& other) {
          const auto is_it = [&job](const auto& before) {
            return before.get() == &job;
          };
          return IsReady(*other) &&
                 std::any_of(other->after_.begin(), other->after_.end(), is_it);
        }));
  }

  // Runs a job that was taken, without the lock, and returns how many others
  // can begin now since it is done. What a job before it threw, which has not
  // made what this one needs, is what this one throws as well.
  size_t RunTaken(Job* job, std::unique_lock<std::mutex>* lock) {
    ++running;
    std::exception_ptr error;
    for (const std::shared_ptr<Job>& other : job->after_) {
      if (other->error_ != nullptr) error = other->error_;
    }
    lock->unlock();
    try {
      if (error == nullptr) job->Run();
    } catch (...) {
      error = std::current_exception();
    }
    lock->lock();
    --running;
    job->state_ = Job::State::kDone;
    job->after_.clear();
    job->error_ = std::move(error);
    done.notify_all();
    return CountFreedBy(*job);
  }

  // Whether as many threads as there may be are at work.
  bool is_full() const {
    return running + sharing >= std::max(threads.count, 1U);
  }

  const Threads threads;
  std::atomic<bool> abandoned{false};
  mutable std::mutex mutex;
  std::condition_variable done;
  // Guarded by the mutex.
  Jobs waiting;
  std::deque<Loop*> loops;  // of threads that are in ForEach
  unsigned most_helpers;
  unsigned helpers = 0;  // tasks that were given to threads
  unsigned running = 0;  // jobs
  unsigned sharing = 0;  // threads that do pieces of another one's loop
};

JobQueue::JobQueue(Threads threads)
    : state_(std::make_shared<State>(std::move(threads))),
      places_(std::max(state_->threads.count, 1U)) {}

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
  }
  AskForHelp(state_, 1);
}

void JobQueue::AskForHelp(const std::shared_ptr<State>& state, size_t more) {
  for (; more > 0; --more) {
    {
      const std::unique_lock<std::mutex> lock(state->mutex);
      if (state->helpers >= state->most_helpers) return;
      ++state->helpers;
    }
    try {
      state->threads.run([state] { Help(state); });
    } catch (const std::bad_alloc&) {
      // It is done without help.
      const std::unique_lock<std::mutex> lock(state->mutex);
      --state->helpers;
      return;
    }
  }
}

void JobQueue::ForEachAt(size_t places, size_t count, Piece piece) {
  places = std::min(count, places);
  if (places < 2) {
    for (size_t index = 0; index < count; ++index) piece(index, 0);
    return;
  }
  State::Loop loop(count, places, piece);
  std::unique_lock<std::mutex> lock(state_->mutex);
  state_->loops.push_back(&loop);
  lock.unlock();
  AskForHelp(state_, places - 1);
  lock.lock();
  if (loop.next < count) state_->Share(&loop, /*own=*/true, &lock);
  std::erase(state_->loops, &loop);
  state_->done.wait(lock, [&] { return loop.working == 0; });
  if (loop.error != nullptr) std::rethrow_exception(loop.error);
}

bool JobQueue::IsDone(const Job& job) const {
  const std::unique_lock<std::mutex> lock(state_->mutex);
  return job.state_ == Job::State::kDone;
}

bool JobQueue::Wait(const std::shared_ptr<Job>& job, Checkpoint* checkpoint) {
  std::unique_lock<std::mutex> lock(state_->mutex);
  while (job->state_ != Job::State::kDone) {
    // What is asked for first, then what threads share, which may be of it.
    if (!state_->is_full()) {
      State::Loop* const loop =
          State::IsReady(*job) ? nullptr : state_->FindLoop();
      if (loop != nullptr) {
        state_->Share(loop, /*own=*/false, &lock);
        continue;
      }
      if (const std::shared_ptr<Job> taken = state_->TakeReady(job.get())) {
        const size_t freed = state_->RunTaken(taken.get(), &lock);
        lock.unlock();
        AskForHelp(state_, freed);
        lock.lock();
        continue;
      }
    }
    state_->done.wait_for(lock, kGlance);
    lock.unlock();
    if (Stops(checkpoint)) return false;
    lock.lock();
  }
  if (job->error_ != nullptr) std::rethrow_exception(job->error_);
  return true;
}

Checkpoint JobQueue::CheckpointOf(StillWanted wanted) const {
  return Checkpoint([state = state_, wanted = std::move(wanted)] {
    if (state->abandoned) return absl::CancelledError("nobody waits for it");
    return wanted ? wanted() : absl::OkStatus();
  });
}

void JobQueue::UseOneThread() {
  places_ = 1;
  const std::unique_lock<std::mutex> lock(state_->mutex);
  state_->most_helpers = 0;
}

// A few pieces of work that is shared, or one job, and then another turn, so
// that others have theirs.
void JobQueue::Help(const std::shared_ptr<State>& state) {
  std::unique_lock<std::mutex> lock(state->mutex);
  if (state->is_full()) {  // as where the one that calls works, too
    --state->helpers;
    return;
  }
  size_t freed = 0;
  if (State::Loop* const loop = state->FindLoop()) {
    state->Share(loop, /*own=*/false, &lock);
  } else if (const std::shared_ptr<Job> taken = state->TakeReady(nullptr)) {
    freed = state->RunTaken(taken.get(), &lock);
  }
  if (!state->has_ready()) {
    --state->helpers;
    return;
  }
  lock.unlock();
  // This one takes one of them, or whatever is first.
  if (freed > 1) AskForHelp(state, freed - 1);
  try {
    state->threads.run([state] { Help(state); });
  } catch (const std::bad_alloc&) {
    lock.lock();
    --state->helpers;
  }
}

ThreadPlan PlanOf(
    const Threads& threads, size_t tensors, bool shares,
    absl::FunctionRef<uint64_t(unsigned workers, size_t places)> more_memory) {
  const size_t count = std::max(threads.count, 1U);
  ThreadPlan plan;
  plan.workers =
      static_cast<unsigned>(std::min(count, std::max<size_t>(1, tensors)));
  const auto places_for = [&](size_t workers) {
    if (!shares) return size_t{1};
    return std::min(count,
                    (count + workers - 1) / workers + (workers > 1 ? 1 : 0));
  };
  plan.places = places_for(plan.workers);
  while (plan.workers > 1 &&
         more_memory(plan.workers, plan.places) > threads.memory) {
    plan.places = places_for(--plan.workers);
  }
  while (plan.places > 1 &&
         more_memory(plan.workers, plan.places) > threads.memory) {
    --plan.places;
  }
  return plan;
}

}  // namespace kvcompress
