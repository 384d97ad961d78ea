// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "thread_reserve.h"

#include <grpcpp/alarm.h>

#include <algorithm>
#include <chrono>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace kvcompress {
namespace {

// Of ours: two for the metrics address, and one each for listening, the check
// of our own addresses, certificates and the end.
constexpr unsigned kOwn = 6;
// Which gRPC starts when it has more to do: without them, others do it later.
constexpr unsigned kSpare = 6;

// Threads of gRPC that run callbacks, at most.
unsigned Callbacks(unsigned processors) { return 2 * processors; }

// What callbacks wait for.
struct Gate {
  std::mutex mutex;
  std::condition_variable changed;
  bool open = false;
  unsigned waiting = 0;  // of those that were asked for
};

}  // namespace

unsigned ThreadsBesideWorkers(unsigned processors) {
  // Those of gRPC 1.51 for what is due at once, and for events.
  const unsigned grpc =
      std::clamp(processors, 2U, 32U) + std::clamp(processors / 2, 2U, 16U);
  return kOwn + grpc + Callbacks(processors) + kSpare;
}

absl::Status TooFewThreads(absl::string_view what) {
  return absl::ResourceExhaustedError(absl::StrCat(
      what,
      ". Raise the limit on them: ulimit -u (LimitNPROC of systemd) of its "
      "user, or that of the control group (TasksMax of systemd, --pids-limit "
      "of Docker)"));
}

absl::StatusOr<std::unique_ptr<ThreadReserve>> ThreadReserve::Take(
    unsigned threads) {
  std::unique_ptr<ThreadReserve> reserve(new ThreadReserve);
  reserve->threads_.reserve(threads);
  try {
    while (reserve->threads_.size() < threads) {
      reserve->threads_.emplace_back([self = reserve.get()] {
        std::unique_lock lock(self->mutex_);
        self->over_.wait(lock, [self] { return self->ending_; });
      });
    }
  } catch (const std::system_error& error) {
    return TooFewThreads(absl::StrCat(
        "the server needs ", threads, " threads besides its workers, and got ",
        reserve->threads_.size(), ": ", error.code().message()));
  }
  return reserve;
}

absl::Status StartThreadsOfGrpc(unsigned processors) {
  constexpr std::chrono::seconds kPatience{20};
  // A thread of which more than two callbacks wait is a reason for another.
  const unsigned count = 4 * Callbacks(processors);
  const auto gate = std::make_shared<Gate>();
  gate->waiting = count;
  std::vector<grpc::Alarm> alarms(count);
  for (grpc::Alarm& alarm : alarms) {
    alarm.Set(gpr_inf_past(GPR_CLOCK_MONOTONIC), [gate](bool) {
      std::unique_lock lock(gate->mutex);
      gate->changed.wait(lock, [&gate] { return gate->open; });
      if (--gate->waiting == 0) gate->changed.notify_all();
    });
  }
  std::unique_lock lock(gate->mutex);
  gate->open = true;
  gate->changed.notify_all();
  if (gate->changed.wait_for(lock, kPatience,
                             [&gate] { return gate->waiting == 0; })) {
    return absl::OkStatus();
  }
  return absl::UnavailableError(absl::StrCat(
      "gRPC did not start its threads within ", kPatience.count(), " seconds"));
}

ThreadReserve::~ThreadReserve() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  over_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

}  // namespace kvcompress
