// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// A bidirectional stream as a pump: read a message, write every response that
// it gives, read the next. One request and one response are held at a time, so
// a stream's memory is bounded whatever the size of the cache, and a reader
// that is slow slows its own writer, by HTTP/2 flow control.

#ifndef KVCOMPRESS_SERVER_STREAM_REACTOR_H_
#define KVCOMPRESS_SERVER_STREAM_REACTOR_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <new>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "call.h"
#include "errors.h"
#include "kvcompress/error.h"

namespace kvcompress {

// What a stream does with its messages. Calls come one at a time.
template <typename Request, typename Response>
class StreamHandler {
 public:
  virtual ~StreamHandler() = default;

  // A request has come. It stays as it is until Next returned false.
  virtual absl::Status Take(const Request& request) = 0;
  // The client has said all.
  virtual absl::Status End() = 0;
  // Fills in the next response that what was taken gives; false when there is
  // none for now. `response` arrives cleared.
  virtual absl::StatusOr<bool> Next(Response* response) = 0;
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

// How a call that failed with `status` ends, given that its client may be gone.
inline absl::Status EndOf(const grpc::CallbackServerContext& context,
                          const absl::Status& status) {
  if (!status.ok() && context.IsCancelled()) {
    return absl::CancelledError("the client has gone");
  }
  return status;
}

template <typename Request, typename Response>
class StreamReactor : public grpc::ServerBidiReactor<Request, Response> {
 public:
  using Handler = StreamHandler<Request, Response>;

  StreamReactor(grpc::CallbackServerContext* context, Method method,
                CallObserver* observer)
      : context_(context), call_(method, observer) {}

  // Begins. REQUIRES: once.
  void Start(std::unique_ptr<Handler> handler) {
    handler_ = std::move(handler);
    this->StartRead(&request_);
  }

  Call& call() { return call_; }

 private:
  void OnReadDone(bool ok) override {
    absl::Status status;
    if (ok) {
      const uint64_t size = request_.ByteSizeLong();
      call_.observer().BytesReceived(call_.method(), size);
      call_.Hold(size);
      status = Guarded([&] { return handler_->Take(request_); });
    } else {
      ended_ = true;
      status = Guarded([&] { return handler_->End(); });
    }
    if (!status.ok()) return End(status);
    Pump();
  }

  void OnWriteDone(bool ok) override {
    if (!ok) return End(absl::CancelledError("the client has gone"));
    Pump();
  }

  void OnCancel() override {}

  void OnDone() override { delete this; }

  void Pump() {
    response_.Clear();
    const absl::StatusOr<bool> more =
        Guarded([&] { return handler_->Next(&response_); });
    if (!more.ok()) return End(more.status());
    if (*more) {
      const uint64_t size = response_.ByteSizeLong();
      call_.observer().BytesSent(call_.method(), size);
      call_.Hold(request_.ByteSizeLong() + size);
      return this->StartWrite(&response_);
    }
    call_.Hold(0);
    if (ended_) return End(absl::OkStatus());
    this->StartRead(&request_);
  }

  void End(const absl::Status& status) {
    const absl::Status end = EndOf(*context_, status);
    call_.set_code(end.code());
    this->Finish(ToGrpcStatus(end));
  }

  grpc::CallbackServerContext* const context_;
  Call call_;
  std::unique_ptr<Handler> handler_;
  Request request_;
  Response response_;
  bool ended_ = false;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_STREAM_REACTOR_H_
