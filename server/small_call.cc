// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "small_call.h"

#include <grpcpp/impl/codegen/server_callback_handlers.h>

#include <utility>

#include "errors.h"
#include "guarded.h"
#include "kvcompress/error.h"

namespace kvcompress {

absl::Status NoRequest() {
  return MakeError(absl::StatusCode::kInvalidArgument,
                   "the call ended without a request",
                   {.reason = "INVALID_MESSAGE", .field = "message"});
}

SmallCall::SmallCall(grpc::CallbackServerContext* context, Watchdog* watchdog,
                     Handler handler)
    : WatchedCall(watchdog, context), handler_(std::move(handler)) {
  BeginWait(Wait::kRead);
  StartRead(&request_);
}

void SmallCall::OnReadDone(bool ok) {
  if (!EndWait()) return;
  if (!ok) return EndCut(Guarded([] { return NoRequest(); }));
  if (handler_.place == nullptr) return Reply();
  const absl::Status status =
      Guarded([this] { return handler_.place([this] { Reply(); }); });
  if (!status.ok()) EndCut(status);
}

void SmallCall::Reply() {
  answered_ = true;
  grpc::Status status = NoMemory();
  Attempt([&] { status = handler_.answer(request_, &response_); });
  if (!status.ok()) {
    Leave();
    return Finish(status);
  }
  BeginWait(Wait::kWrite);
  StartWrite(&response_);
}

void SmallCall::OnWriteDone(bool ok) {
  if (!EndWait()) return;
  Leave();
  Finish(ok ? grpc::Status::OK : grpc::Status::CANCELLED);
}

void SmallCall::EndCut(const absl::Status& status) {
  Leave();
  Finish(answered_ ? GuardedStatus(status) : handler_.refuse(status));
}

void RawService::AddRaw(
    const char* name,
    std::function<RawReactor*(grpc::CallbackServerContext*)> make) {
  AddMethod(new grpc::internal::RpcServiceMethod(
      name, grpc::internal::RpcMethod::BIDI_STREAMING, nullptr));
  MarkMethodRawCallback(
      methods_++,
      new grpc::internal::CallbackBidiHandler<grpc::ByteBuffer,
                                              grpc::ByteBuffer>(
          [make = std::move(make)](grpc::CallbackServerContext* context) {
            return GuardedReactor<RawReactor>([&] { return make(context); });
          }));
}

}  // namespace kvcompress
