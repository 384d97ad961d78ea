// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "reachability.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "guarded.h"

namespace kvcompress {
namespace {

constexpr int kHurry = 4;
constexpr int64_t kStuckSeconds = 30;

// Of a clock that nobody sets.
absl::Time SteadyNow() {
  return absl::UnixEpoch() +
         absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

}  // namespace

Reachability::Reachability(std::vector<ListenAddress> addresses,
                           const Options& options, Events events)
    : addresses_(std::move(addresses)),
      options_(options),
      events_(std::move(events)),
      looked_(absl::ToUnixSeconds(SteadyNow())),
      thread_([this] { Run(); }) {}

Reachability::~Reachability() { Stop(); }

void Reachability::Stop() {
  stopped_ = true;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_all();
  if (thread_.joinable()) thread_.join();
}

bool Reachability::alive() const {
  if (lost_ || stopped_) return !lost_;
  return absl::ToUnixSeconds(SteadyNow()) - looked_ < kStuckSeconds;
}

void Reachability::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    const absl::Duration pause =
        failures_ > 0 ? options_.interval / kHurry : options_.interval;
    if (stop_.wait_for(lock, absl::ToChronoNanoseconds(pause),
                       [this] { return stopping_; })) {
      return;
    }
    lock.unlock();
    Attempt([this] { Judge(Guarded([this] { return Look(); })); });
    lock.lock();
  }
}

absl::Status Reachability::Look() {
  for (const ListenAddress& address : addresses_) {
    const absl::Status status = events_.dial(address);
    looked_ = absl::ToUnixSeconds(SteadyNow());
    if (!status.ok()) {
      return {status.code(),
              absl::StrCat(address.ToString(), ": ", status.message())};
    }
  }
  return absl::OkStatus();
}

void Reachability::Judge(const absl::Status& status) {
  const absl::Time now = SteadyNow();
  if (status.ok() || absl::IsResourceExhausted(status)) {
    broken_since_ = absl::InfiniteFuture();
  } else if (broken_since_ == absl::InfiniteFuture()) {
    broken_since_ = now;
  }
  failures_ = status.ok() ? 0 : failures_ + 1;
  const bool reachable =
      status.ok() || (reachable_ && failures_ < options_.failures);
  if (reachable != reachable_) events_.changed(status);
  reachable_ = reachable;
  if (!lost_ && now - broken_since_ >= options_.lost_after) {
    lost_ = true;
    events_.lost();
  }
}

}  // namespace kvcompress
