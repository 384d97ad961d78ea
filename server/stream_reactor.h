// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// A bidirectional stream as a pump: read a message, write every response that
// it gives, read the next. One request and one response are held at a time, so
// a stream's memory is bounded whatever the size of the cache, and a reader
// that is slow slows its own writer, by HTTP/2 flow control. What it holds it
// reserves from the budget of the service; the watchdog ends its waits. gRPC's
// threads admit it and refuse it; the handler runs on those of the service.

#ifndef KVCOMPRESS_SERVER_STREAM_REACTOR_H_
#define KVCOMPRESS_SERVER_STREAM_REACTOR_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <new>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "call.h"
#include "kvcompress/error.h"
#include "proto/wire/wire.h"
#include "service_state.h"
#include "watchdog.h"
#include "worker_pool.h"

namespace kvcompress {

// What a stream does with its messages, which are as on the wire; see
// proto/wire/wire.h. Calls come one at a time, from one thread or another.
class StreamHandler {
 public:
  virtual ~StreamHandler() = default;

  // A request has come.
  virtual absl::Status Take(const grpc::ByteBuffer& request) = 0;
  // The client has said all.
  virtual absl::Status End() = 0;
  // Sets the next response that what was taken gives; false when there is none
  // for now.
  virtual absl::StatusOr<bool> Next(grpc::ByteBuffer* response) = 0;
  // Memory that is needed beside the messages, in bytes.
  virtual uint64_t working_bytes() const = 0;
};

// Runs `step`; running out of memory is an error like any other.
template <typename Step>
auto Guarded(Step step) -> decltype(step()) {
  try {
    return step();
  } catch (const std::bad_alloc&) {
    return MakeError(absl::StatusCode::kResourceExhausted,
                     "the server is out of memory",
                     {.reason = "OUT_OF_MEMORY"});
  }
}

// Reads a request. INVALID_ARGUMENT when it is none.
template <typename Request>
absl::Status ParseRequest(const grpc::ByteBuffer& bytes, Request* request) {
  if (Parse(bytes, request)) return absl::OkStatus();
  return MakeError(absl::StatusCode::kInvalidArgument,
                   "a message is not of the type that the method takes",
                   {.reason = "INVALID_MESSAGE", .field = "message"});
}

class StreamReactor
    : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
      private WatchedCall {
 public:
  StreamReactor(grpc::CallbackServerContext* context, Method method,
                ServiceState* state)
      : WatchedCall(&state->watchdog, context),
        workers_(state->workers),
        call_(method, context, state) {}

  // Begins, or refuses: for want of memory, or who may not call. REQUIRES:
  // once.
  void Start(std::unique_ptr<StreamHandler> handler) {
    handler_ = std::move(handler);
    absl::Status status = call_.Allow();
    if (status.ok()) status = call_.ReserveStream(0, 0);
    if (!status.ok()) return End(status);
    Read();
  }

  Call& call() { return call_; }

 private:
  void Read() {
    if (absl::Status status = CheckTime(); !status.ok()) return End(status);
    request_.Clear();
    BeginWait(Wait::kRead);
    StartRead(&request_);
  }

  void OnReadDone(bool ok) override {
    if (!EndWait()) return;
    if (ok) {
      const uint64_t size = request_.Length();
      call_.observer().BytesReceived(call_.method(), size);
      const absl::Status status =
          call_.ReserveStream(size, handler_->working_bytes());
      if (!status.ok()) return End(status);
    } else {
      ended_ = true;
    }
    workers_.Run([this] { Take(); });
  }

  void OnWriteDone(bool ok) override {
    if (!EndWait()) return;
    if (!ok) return End(absl::CancelledError("the client has gone"));
    workers_.Run([this] { Pump(); });
  }

  void OnCancel() override {}

  void OnDone() override { delete this; }

  void Take() {
    const absl::Status status = Guarded(
        [&] { return ended_ ? handler_->End() : handler_->Take(request_); });
    if (!status.ok()) return End(status);
    Pump();
  }

  void Pump() {
    response_.Clear();
    const absl::StatusOr<bool> more =
        Guarded([&] { return handler_->Next(&response_); });
    if (!more.ok()) return End(more.status());
    const uint64_t size = *more ? response_.Length() : 0;
    absl::Status status = call_.ReserveStream(request_.Length() + size,
                                              handler_->working_bytes());
    status.Update(CheckTime());
    if (!status.ok()) return End(status);
    if (*more) {
      call_.observer().BytesSent(call_.method(), size);
      BeginWait(Wait::kWrite);
      return StartWrite(&response_);
    }
    if (ended_) return End(absl::OkStatus());
    Read();
  }

  void EndCut(const absl::Status& status) override {
    Finish(call_.EndCut(status));
  }

  void End(const absl::Status& status) { Finish(call_.End(status)); }

  WorkerPool& workers_;
  Call call_;
  std::unique_ptr<StreamHandler> handler_;
  grpc::ByteBuffer request_;
  grpc::ByteBuffer response_;
  bool ended_ = false;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_STREAM_REACTOR_H_
