// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "watchdog.h"

#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <limits>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "guarded.h"
#include "kvcompress/error.h"

namespace kvcompress {
namespace {

constexpr auto kInterval = std::chrono::milliseconds(200);
constexpr int64_t kTrimInterval = 5000;  // milliseconds
constexpr int kStateBits = 3;
constexpr uint64_t kWaitMask = 3;
constexpr uint64_t kCut = 4;

int64_t ToMilliseconds(std::chrono::steady_clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             time.time_since_epoch())
      .count();
}

int64_t Now() { return ToMilliseconds(std::chrono::steady_clock::now()); }

// Infinity becomes a number that no clock reaches.
int64_t ToMilliseconds(absl::Duration duration) {
  return duration == absl::InfiniteDuration()
             ? std::numeric_limits<int64_t>::max()
             : absl::ToInt64Milliseconds(duration);
}

uint64_t Pack(WatchedCall::Wait wait, int64_t since) {
  return static_cast<uint64_t>(since) << kStateBits |
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
                   "the call exceeded the server's time limit",
                   {.reason = "CALL_TOO_LONG"});
}

absl::Status Stalled(WatchedCall::Wait wait) {
  const bool sends = wait == WatchedCall::Wait::kRead;
  return MakeError(absl::StatusCode::kDeadlineExceeded,
                   absl::StrCat("the client ", sends ? "sent" : "took",
                                " too little data for longer than the "
                                "server's stall timeout"),
                   {.reason = "STALLED"});
}

absl::Status Displaced() {
  return MakeError(absl::StatusCode::kResourceExhausted,
                   "too many calls of this kind wait for their clients, and "
                   "this one has waited longest",
                   {.reason = "TOO_MANY_STREAMS"});
}

}  // namespace

WatchedCall::WatchedCall(Watchdog* watchdog,
                         grpc::CallbackServerContext* context)
    : watchdog_(watchdog), context_(context), begin_(Now()) {
  watchdog_->Add(this);
}

WatchedCall::~WatchedCall() { Leave(); }

void WatchedCall::Leave() { watchdog_->Remove(this); }

std::mutex& WatchedCall::StartMutex() const {
  static std::mutex mutexes[64];
  return mutexes[reinterpret_cast<uintptr_t>(this) / 64 % std::size(mutexes)];
}

void WatchedCall::BeginWait(Wait wait) {
  state_ = Pack(wait, Now() - Of(wait).milliseconds);
}

bool WatchedCall::EndWait() {
  uint64_t state = state_;
  while ((state & kCut) == 0) {
    const int64_t now = Now();
    if (!state_.compare_exchange_weak(state, Pack(Wait::kNone, now))) continue;
    const Wait wait = WaitOf(state);
    if (wait != Wait::kNone) Of(wait).milliseconds = now - TimeOf(state);
    return true;
  }
  if (WaitOf(state) == Wait::kWrite) EndCutWrite();
  return false;
}

void WatchedCall::Moved(Wait wait, uint64_t bytes) {
  Waits& waits = Of(wait);
  waits.bytes += std::min(bytes, kProgress);
  if (waits.bytes >= kProgress) waits = Waits();
}

void WatchedCall::Forgive(Wait wait, absl::Duration time) {
  int64_t& waited = Of(wait).milliseconds;
  waited -= std::min(waited, absl::ToInt64Milliseconds(time));
}

// A read that waits ends with the call. A write does not: it has to be
// cancelled first, and who comes second, of this and the EndWait of that write,
// ends the call.
void WatchedCall::CutOff(Wait wait, Cause cause) {
  absl::Status status = Guarded([&] {
    if (cause == Cause::kDisplaced) return Displaced();
    return cause == Cause::kTooLong ? TooLong() : Stalled(wait);
  });
  if (wait == Wait::kRead) {
    { const std::lock_guard started(StartMutex()); }
    return EndCut(status);
  }
  cut_ = std::move(status);
  context_->TryCancel();
  EndCutWrite();
}

void WatchedCall::EndCutWrite() {
  if (write_over_.exchange(true)) EndCut(cut_);
}

absl::Status WatchedCall::CheckTime() const {
  return watchdog_->Expired(begin_, Now()) ? TooLong() : absl::OkStatus();
}

Watchdog::Watchdog(const Limits& limits)
    : stall_ms_(ToMilliseconds(limits.stall)),
      call_ms_(ToMilliseconds(limits.call)),
      most_(limits.most),
      trims_(limits.trims) {
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
  MakeRoom();
  const std::lock_guard lock(mutex_);
  calls_.insert(call);
  next_trim_ = 0;
}

void Watchdog::MakeRoom() {
  WatchedCall* longest = nullptr;
  uint64_t state = 0;
  {
    const std::lock_guard lock(mutex_);
    if (calls_.size() < most_) return;
    for (WatchedCall* call : calls_) {
      const uint64_t other = call->state_;
      if (WaitOf(other) == WatchedCall::Wait::kNone || (other & kCut) != 0) {
        continue;
      }
      if (longest == nullptr || TimeOf(other) < TimeOf(state)) {
        longest = call;
        state = other;
      }
    }
    if (longest == nullptr ||
        !longest->state_.compare_exchange_strong(state, state | kCut)) {
      return;
    }
  }
  longest->CutOff(WaitOf(state), WatchedCall::Cause::kDisplaced);
}

void Watchdog::Remove(WatchedCall* call) {
  const std::lock_guard lock(mutex_);
  calls_.erase(call);
}

bool Watchdog::Expired(int64_t begin, int64_t now) const {
  return now - begin > call_ms_;
}

absl::Status Watchdog::CheckTime(
    std::chrono::steady_clock::time_point begin) const {
  return Expired(ToMilliseconds(begin), Now()) ? TooLong() : absl::OkStatus();
}

void Watchdog::Run() {
  std::unique_lock lock(mutex_);
  while (!stop_.wait_for(lock, kInterval, [this] { return stopping_; })) {
    lock.unlock();
    Attempt([this] { Look(); });
    if (ShouldTrim()) malloc_trim(0);
    lock.lock();
  }
}

bool Watchdog::ShouldTrim() {
  const std::lock_guard lock(mutex_);
  const int64_t now = Now();
  if (!trims_ || !calls_.empty() || now < next_trim_) return false;
  next_trim_ = now + kTrimInterval;
  return true;
}

void Watchdog::Look() {
  // A call whose wait was taken here cannot end before it is cut off, so it
  // outlives the lock.
  using Cause = WatchedCall::Cause;
  std::vector<std::tuple<WatchedCall*, WatchedCall::Wait, Cause>> taken;
  {
    const std::lock_guard lock(mutex_);
    // There is space for every call before one is taken: none is lost for lack
    // of memory.
    taken.reserve(calls_.size());
    const int64_t now = Now();
    for (WatchedCall* call : calls_) {
      uint64_t state = call->state_;
      const WatchedCall::Wait wait = WaitOf(state);
      if (wait == WatchedCall::Wait::kNone || (state & kCut) != 0) continue;
      const bool expired = Expired(call->begin_, now);
      if (!expired && now - TimeOf(state) <= stall_ms_) continue;
      if (call->state_.compare_exchange_strong(state, state | kCut)) {
        taken.emplace_back(call, wait,
                           expired ? Cause::kTooLong : Cause::kStalled);
      }
    }
  }
  for (const auto& [call, wait, cause] : taken) call->CutOff(wait, cause);
}

}  // namespace kvcompress
