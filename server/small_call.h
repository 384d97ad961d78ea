// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// A call that takes one small request and returns one response immediately,
// under watch from its first moment on.
//
// For a unary method gRPC waits for the request before it reports the call, for
// ever if need be: a client that opens calls and sends nothing takes some 12
// KiB for each, tens of thousands on one connection. On the wire a unary call
// is a stream in both directions like any other, so this takes it as one.

#ifndef KVCOMPRESS_SERVER_SMALL_CALL_H_
#define KVCOMPRESS_SERVER_SMALL_CALL_H_

#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/rpc_service_method.h>
#include <grpcpp/impl/service_type.h>

#include <functional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "guarded.h"
#include "watchdog.h"

namespace kvcompress {

// A stream of messages as they are on the wire.
using RawReactor = grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;

// How long the request of a call may take to come that is a few bytes.
inline constexpr absl::Duration kSmallRequestTime = absl::Seconds(10);

// The most calls of this kind at a time; a further one displaces the one that
// has waited longest for its client.
inline constexpr size_t kMaxSmallCalls = 1024;

// INVALID_ARGUMENT: a call that has exactly one request ended without it.
absl::Status NoRequest();

class SmallCall final : public RawReactor, private WatchedCall {
 public:
  // Returns the status of the call, and where that is OK sets the response.
  using Answer = std::function<grpc::Status(const grpc::ByteBuffer& request,
                                            grpc::ByteBuffer* response)>;
  // Runs `task` on another thread, or returns the error that ends the call.
  using Place = std::function<absl::Status(std::function<void()> task)>;

  // Returns the status for the client of a call that ends with this error.
  using Refuse = std::function<grpc::Status(const absl::Status& error)>;

  // One of `answer` and `refuse` is called, once: `answer` when the request has
  // come, on gRPC's own thread, so that it must be quick, unless `place` says
  // where.
  struct Handler {
    Answer answer;
    Refuse refuse = GuardedStatus;
    Place place;
  };

  // Begins to wait for the request. Deletes itself. `watchdog` outlives it.
  SmallCall(grpc::CallbackServerContext* context, Watchdog* watchdog,
            Handler handler);

 private:
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override {}
  void OnDone() override { delete this; }
  void EndCut(const absl::Status& status) override;
  void Reply();

  const Handler handler_;
  bool answered_ = false;
  grpc::ByteBuffer request_;
  grpc::ByteBuffer response_;
};

// A service whose methods are all taken as raw streams, whatever their types in
// the API: for unary methods, and those that stream responses, this is what
// lets calls be seen before their request is there.
class RawService : public grpc::Service {
 protected:
  // Adds the method of this full name: "/package.Service/Method". What `make`
  // returns deletes itself; it may throw std::bad_alloc.
  void AddRaw(const char* name,
              std::function<RawReactor*(grpc::CallbackServerContext*)> make);

 private:
  int methods_ = 0;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_SMALL_CALL_H_
