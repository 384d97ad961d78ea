// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// What every call has: its caller, its clock, its observer, its share of the
// memory budget and its end. One lives in each reactor, which alone may use it.

#ifndef KVCOMPRESS_SERVER_CALL_H_
#define KVCOMPRESS_SERVER_CALL_H_

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <new>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "admission.h"
#include "caller.h"
#include "errors.h"
#include "guarded.h"
#include "kvcompress/error.h"
#include "kvcompress/threads.h"
#include "observer.h"
#include "service_state.h"
#include "watchdog.h"
#include "worker_pool.h"

namespace kvcompress {

// Memory for the tensors that the threads of a call work on, where the budget
// is not bounded, in bytes.
inline constexpr uint64_t kUnboundedCallMemory = uint64_t{1} << 30;

class Call {
 public:
  // Neither pointer is null, and both outlive the call.
  Call(Method method, grpc::CallbackServerContext* context, ServiceState* state)
      : method_(method),
        context_(context),
        state_(state),
        caller_(IdentifyCaller(context)),
        start_(std::chrono::steady_clock::now()) {
    observer().CallStarted(method_);
  }

  // A call that never reached an end is counted as cancelled.
  ~Call() {
    if (!ended_) Close(absl::StatusCode::kCancelled, "");
  }

  // OK when the caller may call the method; see AccessRules::Check.
  absl::Status Allow() const {
    return state_->options.access.Check(method_, caller_.identities);
  }

  // Whether the caller came over a Unix socket.
  bool is_local() const { return caller_.is_local; }

  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // Whom fairness among clients counts the call to.
  const std::string& client() const { return caller_.client; }

  // CANCELLED once nobody waits for the result any more, DEADLINE_EXCEEDED once
  // the call has lasted longer than it may. Thread safe.
  absl::Status CheckWanted() const {
    if (context_->IsCancelled()) {
      return absl::CancelledError(
          "the client cancelled the call or disconnected");
    }
    return state_->watchdog.CheckTime(start_);
  }

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
    absl::Status status =
        state_->budget.Change(caller_.client, reserved_, bytes);
    if (!status.ok()) return status;
    observer().InFlightBytes(static_cast<int64_t>(bytes) -
                             static_cast<int64_t>(reserved_));
    reserved_ = bytes;
    return absl::OkStatus();
  }

  // Reserves for a stream that holds messages of these many bytes, each twice:
  // parsed, and as it is on the wire; `parsed` bytes that parsing takes beyond
  // that, or that what was parsed has become; and `working` bytes more.
  absl::Status ReserveStream(uint64_t messages, uint64_t working,
                             uint64_t parsed = 0) {
    messages_ = 2 * messages + parsed;
    return ReserveWorking(working);
  }

  // The same with other `working` bytes, besides the messages that were
  // reported last.
  absl::Status ReserveWorking(uint64_t working) {
    return Reserve(std::max(kStreamBytes, messages_) + working);
  }

  // The same where there is memory to spare; false, and as it was, where there
  // is not.
  bool ReserveIfSpare(uint64_t working) {
    const uint64_t bytes = std::max(kStreamBytes, messages_) + working;
    if (bytes <= reserved_) return true;
    if (!state_->budget.GrowIfSpare(caller_.client, reserved_, bytes)) {
      return false;
    }
    observer().InFlightBytes(static_cast<int64_t>(bytes - reserved_));
    reserved_ = bytes;
    return true;
  }

  // Threads of the service that the call may have besides its own, as long as
  // it lasts.
  Threads threads() const {
    ServiceState* const state = state_;
    return {.count = state->options.call_threads == 0
                         ? WorkerPool::Processors()
                         : state->options.call_threads,
            .run =
                [state, client = caller_.client](std::function<void()> task) {
                  state->workers.Help(client, std::move(task));
                },
            .memory = state->budget.limit() == 0 ? kUnboundedCallMemory
                                                 : state->budget.limit() / 4};
  }

  // The most that any call can reserve, in bytes.
  uint64_t most_memory() const {
    const uint64_t limit = state_->budget.limit();
    return limit == 0 ? std::numeric_limits<uint64_t>::max() : limit;
  }

  // Ends the call with `status`, or as cancelled when it failed because its
  // client is gone. Returns the status for the client. REQUIRES: one End or
  // EndCut.
  grpc::Status End(const absl::Status& status) {
    if (!status.ok() && context_->IsCancelled()) {
      return EndCut(Guarded([] {
        return absl::CancelledError(
            "the client cancelled the call or disconnected");
      }));
    }
    return EndCut(status);
  }

  // The same for a call that the watchdog cut off, which may have cancelled it:
  // that does not say that the client is gone. What the call had
  // reserved is free for the client's next call, and the call is counted,
  // before the client is notified. Clients that retry by themselves get a retry
  // delay.
  grpc::Status EndCut(const absl::Status& status) {
    try {
      const auto detail = GetErrorDetail(status);
      Close(status.code(), detail ? detail->reason : "");
      if (const auto delay = RetryDelayOf(status)) {
        context_->AddTrailingMetadata(
            "grpc-retry-pushback-ms",
            absl::StrCat(absl::ToInt64Milliseconds(*delay)));
      }
      return ToGrpcStatus(status);
    } catch (const std::bad_alloc&) {
      if (!ended_) Close(absl::StatusCode::kResourceExhausted, "");
      return NoMemory();
    }
  }

  Method method() const { return method_; }
  // REQUIRES: it has not ended.
  const CallNames& names() const { return caller_.names; }
  CallObserver& observer() { return *state_->observer; }

 private:
  // REQUIRES: once.
  void Close(absl::StatusCode code, std::string reason) {
    ended_ = true;
    Reserve(0).IgnoreError();  // less always fits
    Attempt([&] {
      observer().CallHandled({method_, code, Seconds(), std::move(reason),
                              std::move(caller_.names)});
    });
  }

  const Method method_;
  grpc::CallbackServerContext* const context_;
  ServiceState* const state_;
  Caller caller_;
  const std::chrono::steady_clock::time_point start_;
  bool ended_ = false;
  uint64_t reserved_ = 0;
  uint64_t messages_ = 0;  // bytes that its messages take
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
