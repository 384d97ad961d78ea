// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// What every call has: its clock, its observer and its end. One lives in each
// reactor. Thread safe as the observer is; the rest belongs to the reactor.

#ifndef KVCOMPRESS_SERVER_CALL_H_
#define KVCOMPRESS_SERVER_CALL_H_

#include <chrono>
#include <cstdint>

#include "absl/status/status.h"
#include "observer.h"

namespace kvcompress {

class Call {
 public:
  // `observer` is not null and outlives the call.
  Call(Method method, CallObserver* observer)
      : method_(method),
        observer_(observer),
        start_(std::chrono::steady_clock::now()) {
    observer_->CallStarted(method_);
  }

  ~Call() {
    Hold(0);
    observer_->CallHandled(method_, code_, Seconds());
  }

  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // Since the call began.
  double Seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() -
                                         start_)
        .count();
  }

  // Says how many bytes of messages the call holds from now on.
  void Hold(uint64_t bytes) {
    observer_->InFlightBytes(static_cast<int64_t>(bytes) -
                             static_cast<int64_t>(held_));
    held_ = bytes;
  }

  void set_code(absl::StatusCode code) { code_ = code; }
  Method method() const { return method_; }
  CallObserver& observer() { return *observer_; }

 private:
  const Method method_;
  CallObserver* const observer_;
  const std::chrono::steady_clock::time_point start_;
  // What a call that never reached an end is counted as.
  absl::StatusCode code_ = absl::StatusCode::kCancelled;
  uint64_t held_ = 0;
};

// Adds the time of its scope to a sum of seconds.
class StageTimer {
 public:
  explicit StageTimer(double* sum)
      : sum_(sum), start_(std::chrono::steady_clock::now()) {}
  ~StageTimer() {
    *sum_ +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start_)
            .count();
  }
  StageTimer(const StageTimer&) = delete;
  StageTimer& operator=(const StageTimer&) = delete;

 private:
  double* const sum_;
  const std::chrono::steady_clock::time_point start_;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_CALL_H_
