// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "watchdog.h"

#include <malloc.h>

#include <chrono>
#include <limits>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kvcompress/error.h"

namespace kvcompress {
namespace {

constexpr auto kInterval = std::chrono::milliseconds(200);
constexpr int64_t kTrimInterval = 5000;  // milliseconds
constexpr int kStateBits = 3;
constexpr uint64_t kWaitMask = 3;
constexpr uint64_t kCut = 4;

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
  return static_cast<uint64_t>(Now()) << kStateBits |
         static_cast<uint64_t>(wait);
}

WatchedCall::Wait WaitOf(uint64_t state) {
  return static_cast<WatchedCall::Wait>(state & kWaitMask);
}

int64_t TimeOf(uint64_t state) {
  return static_cast<int64_t>(state >> kStateBits);
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

WatchedCall::WatchedCall(Watchdog* watchdog,
                         grpc::CallbackServerContext* context)
    : watchdog_(watchdog), context_(context), begin_(Now()) {
  watchdog_->Add(this);
}

WatchedCall::~WatchedCall() { watchdog_->Remove(this); }

void WatchedCall::BeginWait(Wait wait) { state_ = Pack(wait); }

bool WatchedCall::EndWait() {
  uint64_t state = state_;
  while ((state & kCut) == 0) {
    if (state_.compare_exchange_weak(state, Pack(Wait::kNone))) return true;
  }
  if (WaitOf(state) == Wait::kWrite) EndCutWrite();
  return false;
}

// A read that waits ends with the call. A write does not: it has to be
// cancelled first, and who comes second, of this and the EndWait of that write,
// ends the call.
void WatchedCall::CutOff(Wait wait, absl::Status status) {
  if (wait == Wait::kRead) return EndCut(status);
  cut_ = std::move(status);
  context_->TryCancel();
  EndCutWrite();
}

void WatchedCall::EndCutWrite() {
  if (write_over_.exchange(true)) EndCut(cut_);
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
      if (wait == WatchedCall::Wait::kNone || (state & kCut) != 0) continue;
      const bool expired = Expired(*call, now);
      if (!expired && now - TimeOf(state) <= stall_ms_) continue;
      if (call->state_.compare_exchange_strong(state, state | kCut)) {
        taken.emplace_back(call, wait, expired ? TooLong() : Stalled(wait));
      }
    }
  }
  for (auto& [call, wait, status] : taken) {
    call->CutOff(wait, std::move(status));
  }
}

}  // namespace kvcompress
