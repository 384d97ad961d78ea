// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// A bidirectional stream as a pump: read a message, write every response that
// it produces, read the next. One request and one response are held at a time,
// so a stream's memory is bounded whatever the size of the cache, and a reader
// that is slow slows its own writer, by HTTP/2 flow control. What it holds it
// reserves from the budget of the service; the watchdog ends its waits. gRPC's
// threads admit it and refuse it; the handler runs on those of the service.

#ifndef KVCOMPRESS_SERVER_STREAM_REACTOR_H_
#define KVCOMPRESS_SERVER_STREAM_REACTOR_H_

#include <grpcpp/grpcpp.h>

#include <limits>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "call.h"
#include "guarded.h"
#include "kvcompress/error.h"
#include "service_state.h"
#include "small_call.h"
#include "watchdog.h"
#include "worker_pool.h"

namespace kvcompress {

// What a stream does with its messages, which are as on the wire; see
// wire/messages.h. Calls come one at a time, from one thread or another.
class StreamHandler {
 public:
  // Content of a message that is no run of bytes: options, and tables.
  static constexpr uint64_t kAll = std::numeric_limits<uint64_t>::max();

  virtual ~StreamHandler() = default;

  // A request has come. `*content`, 0 before, becomes the bytes of a cache that
  // are in it, or kAll.
  virtual absl::Status Take(const grpc::ByteBuffer& request,
                            uint64_t* content) = 0;
  // The client has said all.
  virtual absl::Status End() = 0;
  // Sets the next response for what was taken; returns false when there is none
  // for now.
  virtual absl::StatusOr<bool> Next(grpc::ByteBuffer* response) = 0;
  // Memory that is needed besides the messages, in bytes.
  virtual uint64_t working_bytes() const = 0;
  // Memory of what earlier requests have become, in bytes.
  virtual uint64_t kept_bytes() const { return 0; }
};

// Most requests of a call without any content.
inline constexpr uint64_t kMaxEmptyRequests = 1024;

class StreamReactor final : public RawReactor, private WatchedCall {
 public:
  StreamReactor(grpc::CallbackServerContext* context, Method method,
                ServiceState* state)
      : WatchedCall(&state->watchdog, context),
        workers_(state->workers),
        call_(method, context, state) {}

  // Begins, or refuses: for lack of memory, or who may not call. `make` returns
  // the handler of the call. REQUIRES: once.
  template <typename Make>
  void Start(Make make) {
    const absl::Status status = Guarded([&] {
      absl::Status allowed = call_.Allow();
      if (allowed.ok()) allowed = call_.ReserveStream(0, 0);
      if (allowed.ok()) handler_ = make(&call_);
      return allowed;
    });
    status.ok() ? Read() : End(status);
  }

 private:
  void Read() {
    const absl::Status status = Guarded([this] { return CheckTime(); });
    if (!status.ok()) return End(status);
    request_.Clear();
    reading_ = true;
    BeginRead([this] { StartRead(&request_); });
  }

  void OnReadDone(bool ok) override {
    if (!EndWait()) return;
    reading_ = false;
    ended_ = !ok;
    const absl::Status status = Guarded([this] {
      if (!ended_) {
        const uint64_t size = request_.Length();
        call_.observer().BytesReceived(call_.method(), size);
        absl::Status reserved = Reserve(size);
        if (!reserved.ok()) return reserved;
      }
      workers_.Run(call_.client(), [this] { Take(); });
      return absl::OkStatus();
    });
    if (!status.ok()) End(status);
  }

  void OnWriteDone(bool ok) override {
    if (!EndWait()) return;
    Moved(Wait::kWrite, response_.Length());
    const absl::Status status = Guarded([this, ok] {
      if (!ok)
        return absl::CancelledError(
            "the client cancelled the call or disconnected");
      workers_.Run(call_.client(), [this] { Pump(); });
      return absl::OkStatus();
    });
    if (!status.ok()) End(status);
  }

  void OnCancel() override {}

  void OnDone() override { delete this; }

  void Take() {
    const absl::Status status =
        Guarded([this] { return ended_ ? handler_->End() : TakeRequest(); });
    if (!status.ok()) return End(status);
    Pump();
  }

  absl::Status TakeRequest() {
    uint64_t content = 0;
    absl::Status status = handler_->Take(request_, &content);
    if (!status.ok()) return status;
    Moved(Wait::kRead, content);
    if (content == 0 && ++empty_ > kMaxEmptyRequests) {
      return MakeError(
          absl::StatusCode::kInvalidArgument,
          absl::StrCat("the call has more than ", kMaxEmptyRequests,
                       " messages without content"),
          {.reason = "TOO_MANY_EMPTY_MESSAGES",
           .limit = kMaxEmptyRequests,
           .field = "message"});
    }
    // What it takes is known before it is begun.
    return Reserve(request_.Length());
  }

  void Pump() {
    response_.Clear();
    const absl::StatusOr<bool> more = Guarded([this] { return Next(); });
    if (!more.ok()) return End(more.status());
    if (*more) {
      BeginWait(Wait::kWrite);
      return StartWrite(&response_);
    }
    if (ended_) return End(absl::OkStatus());
    Read();
  }

  absl::StatusOr<bool> Next() {
    const absl::StatusOr<bool> more = handler_->Next(&response_);
    if (!more.ok()) return more;
    const uint64_t size = *more ? response_.Length() : 0;
    absl::Status status = Reserve(request_.Length() + size);
    status.Update(CheckTime());
    if (!status.ok()) return status;
    if (*more) call_.observer().BytesSent(call_.method(), size);
    return more;
  }

  absl::Status Reserve(uint64_t messages) {
    return call_.ReserveStream(messages, handler_->working_bytes(),
                               handler_->kept_bytes());
  }

  // What was reserved is given back with the end, and gRPC may keep what is
  // left of a call for as long as its client takes nothing.
  void Drop() {
    Leave();
    handler_.reset();
    response_.Clear();
    if (!reading_) request_.Clear();  // a read that was cut off still has it
  }

  void EndCut(const absl::Status& status) override {
    Drop();
    Finish(call_.EndCut(status));
  }

  void End(const absl::Status& status) {
    Drop();
    Finish(call_.End(status));
  }

  WorkerPool& workers_;
  Call call_;
  std::unique_ptr<StreamHandler> handler_;
  grpc::ByteBuffer request_;
  grpc::ByteBuffer response_;
  uint64_t empty_ = 0;
  bool ended_ = false;
  bool reading_ = false;
};

// A stream that deletes itself, with a handler of this type. Throws
// std::bad_alloc.
template <typename Handler>
RawReactor* NewStream(grpc::CallbackServerContext* context, Method method,
                      ServiceState* state) {
  auto* const reactor = new StreamReactor(context, method, state);
  reactor->Start([state](Call* call) {
    return std::make_unique<Handler>(state->options, call);
  });
  return reactor;
}

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_STREAM_REACTOR_H_
