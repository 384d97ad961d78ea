// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "thread_reserve.h"

#include <algorithm>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace kvcompress {
namespace {

// Of ours: for calls, self-tests, reflection, the metrics address, listening,
// the check of our own addresses, certificates, profiles, and the end.
constexpr unsigned kOwn = 12;
// Of gRPC 1.51: two for timers and two for what may block, then those that
// take events and those that run callbacks, by processors.
constexpr unsigned kGrpc = 4;
// Which gRPC starts when it has more to do.
constexpr unsigned kSpare = 4;

}  // namespace

unsigned ThreadsOfServer(unsigned processors) {
  return kOwn + kGrpc + std::clamp(processors, 2U, 32U) +
         std::clamp(processors / 2, 2U, 16U) + kSpare;
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
    return absl::ResourceExhaustedError(absl::StrCat(
        "a server needs ", threads, " threads besides its workers, and got ",
        reserve->threads_.size(), ": ", error.code().message(),
        ". Raise the limit on them: ulimit -u (LimitNPROC of systemd) of its "
        "user, or that of the control group (TasksMax of systemd, --pids-limit "
        "of Docker)"));
  }
  return reserve;
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
