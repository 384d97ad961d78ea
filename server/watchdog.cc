// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "watchdog.h"

#include <malloc.h>

#include <chrono>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kvcompress/error.h"

namespace kvcompress {
namespace {

constexpr auto kInterval = std::chrono::milliseconds(200);
constexpr int64_t kTrimInterval = 5000;  // milliseconds
constexpr int kWaitBits = 2;

int64_t Now() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Infinity becomes a number that no clock reaches.
int64_t ToMilliseconds(absl::Duration duration) {
  return duration == absl::InfiniteDuration()
             ? std::numeric_limits<int64_t>::max()
             : absl::ToInt64Milliseconds(duration);
}

uint64_t Pack(WatchedCall::Wait wait) {
  return static_cast<uint64_t>(Now()) << kWaitBits |
         static_cast<uint64_t>(wait);
}

WatchedCall::Wait WaitOf(uint64_t state) {
  return static_cast<WatchedCall::Wait>(state & ((1 << kWaitBits) - 1));
}

int64_t TimeOf(uint64_t state) {
  return static_cast<int64_t>(state >> kWaitBits);
}

absl::Status TooLong() {
  return MakeError(absl::StatusCode::kDeadlineExceeded,
                   "the call lasts longer than the server allows",
                   {.reason = "CALL_TOO_LONG"});
}

absl::Status Stalled(WatchedCall::Wait wait) {
  const bool sends = wait == WatchedCall::Wait::kRead;
  return MakeError(absl::StatusCode::kDeadlineExceeded,
                   absl::StrCat("the client ", sends ? "sent" : "took",
                                " nothing for longer than the server waits"),
                   {.reason = "STALLED"});
}

}  // namespace

WatchedCall::WatchedCall(Watchdog* watchdog)
    : watchdog_(watchdog), begin_(Now()) {
  watchdog_->Add(this);
}

WatchedCall::~WatchedCall() { watchdog_->Remove(this); }

void WatchedCall::BeginWait(Wait wait) { state_ = Pack(wait); }

bool WatchedCall::EndWait() {
  uint64_t state = state_;
  while (WaitOf(state) != Wait::kCut) {
    if (state_.compare_exchange_weak(state, Pack(Wait::kNone))) return true;
  }
  return false;
}

absl::Status WatchedCall::CheckTime() const {
  return watchdog_->Expired(*this, Now()) ? TooLong() : absl::OkStatus();
}

Watchdog::Watchdog(const Limits& limits)
    : stall_ms_(ToMilliseconds(limits.stall)),
      call_ms_(ToMilliseconds(limits.call)) {
  constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  if (stall_ms_ == kNever && call_ms_ == kNever) return;
  thread_ = std::thread([this] { Run(); });
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Watchdog::Add(WatchedCall* call) {
  const std::lock_guard lock(mutex_);
  calls_.insert(call);
  next_trim_ = 0;
}

void Watchdog::Remove(WatchedCall* call) {
  const std::lock_guard lock(mutex_);
  calls_.erase(call);
}

bool Watchdog::Expired(const WatchedCall& call, int64_t now) const {
  return now - call.begin_ > call_ms_;
}

void Watchdog::Run() {
  std::unique_lock lock(mutex_);
  while (!stop_.wait_for(lock, kInterval, [this] { return stopping_; })) {
    lock.unlock();
    Look();
    if (ShouldTrim()) malloc_trim(0);
    lock.lock();
  }
}

bool Watchdog::ShouldTrim() {
  const std::lock_guard lock(mutex_);
  const int64_t now = Now();
  if (!calls_.empty() || now < next_trim_) return false;
  next_trim_ = now + kTrimInterval;
  return true;
}

void Watchdog::Look() {
  // A call whose wait was taken here cannot end before it is cut off, so it
  // outlives the lock.
  std::vector<std::tuple<WatchedCall*, WatchedCall::Wait, absl::Status>> taken;
  {
    const std::lock_guard lock(mutex_);
    const int64_t now = Now();
    for (WatchedCall* call : calls_) {
      uint64_t state = call->state_;
      const WatchedCall::Wait wait = WaitOf(state);
      if (wait != WatchedCall::Wait::kRead &&
          wait != WatchedCall::Wait::kWrite) {
        continue;
      }
      const bool expired = Expired(*call, now);
      if (!expired && now - TimeOf(state) <= stall_ms_) continue;
      if (call->state_.compare_exchange_strong(state,
                                               Pack(WatchedCall::Wait::kCut))) {
        taken.emplace_back(call, wait, expired ? TooLong() : Stalled(wait));
      }
    }
  }
  for (const auto& [call, wait, status] : taken) call->CutOff(wait, status);
}

}  // namespace kvcompress
