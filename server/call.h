// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// What every call has: its clock, its observer, its share of the memory budget
// and its end. One lives in each reactor, which alone may use it.

#ifndef KVCOMPRESS_SERVER_CALL_H_
#define KVCOMPRESS_SERVER_CALL_H_

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "absl/status/status.h"
#include "admission.h"
#include "observer.h"

namespace kvcompress {

class Call {
 public:
  // Neither pointer is null, and both outlive the call.
  Call(Method method, MemoryBudget* budget, CallObserver* observer)
      : method_(method),
        budget_(budget),
        observer_(observer),
        start_(std::chrono::steady_clock::now()) {
    observer_->CallStarted(method_);
  }

  ~Call() {
    Reserve(0).IgnoreError();
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

  // Reserves `bytes` of memory, instead of what was reserved before. An error
  // of MemoryBudget::Change, when they do not fit.
  absl::Status Reserve(uint64_t bytes) {
    if (bytes == reserved_) return absl::OkStatus();
    const absl::Status status = budget_->Change(reserved_, bytes);
    if (!status.ok()) return status;
    observer_->InFlightBytes(static_cast<int64_t>(bytes) -
                             static_cast<int64_t>(reserved_));
    reserved_ = bytes;
    return absl::OkStatus();
  }

  // Reserves for a stream that holds messages of these many bytes, each twice:
  // parsed, and as it is on the wire; and `working` bytes beside them.
  absl::Status ReserveStream(uint64_t messages, uint64_t working) {
    return Reserve(std::max(kStreamBytes, 2 * messages) + working);
  }

  // Says how the call ends, before its client is told: what it had reserved is
  // then free for the client's next call.
  void SetEnd(absl::StatusCode code) {
    code_ = code;
    Reserve(0).IgnoreError();  // less always fits
  }

  Method method() const { return method_; }
  CallObserver& observer() { return *observer_; }

 private:
  const Method method_;
  MemoryBudget* const budget_;
  CallObserver* const observer_;
  const std::chrono::steady_clock::time_point start_;
  // What a call that never reached an end is counted as.
  absl::StatusCode code_ = absl::StatusCode::kCancelled;
  uint64_t reserved_ = 0;
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
