// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Running out of memory is an error of the call that asked for it, and never
// the end of the process: whatever gRPC, a worker or the watchdog calls goes
// through here.

#ifndef KVCOMPRESS_SERVER_GUARDED_H_
#define KVCOMPRESS_SERVER_GUARDED_H_

#include <grpcpp/server_context.h>

#include <new>
#include <utility>

#include "absl/status/status.h"
#include "errors.h"
#include "kvcompress/error.h"

namespace kvcompress {

// RESOURCE_EXHAUSTED. To be called once while there is memory: from then on it
// takes none.
inline const absl::Status& OutOfMemory() {
  static const absl::Status status =
      MakeError(absl::StatusCode::kResourceExhausted,
                "the server is out of memory", {.reason = "OUT_OF_MEMORY"});
  return status;
}

// Runs `step`; running out of memory is an error like any other.
template <typename Step>
auto Guarded(Step step) -> decltype(step()) {
  try {
    return step();
  } catch (const std::bad_alloc&) {
    return OutOfMemory();
  }
}

// Runs `step`, which may leave undone what there was no memory for.
template <typename Step>
void Attempt(Step step) {
  try {
    step();
  } catch (const std::bad_alloc&) {
    return;
  }
}

// The same for gRPC. Short enough to be kept in the object itself.
inline grpc::Status NoMemory() {
  return {grpc::StatusCode::RESOURCE_EXHAUSTED, "out of memory"};
}

// `status` for gRPC, or that memory is short where there is none to say it.
inline grpc::Status GuardedStatus(const absl::Status& status) {
  grpc::Status told = NoMemory();
  Attempt([&] { told = ToGrpcStatus(status); });
  return told;
}

// A reactor, or one of gRPC's kind `Reactor` that says that memory is short;
// null when there is none even for that.
template <typename Reactor, typename Make>
Reactor* GuardedReactor(Make make) {
  class Refusal final : public Reactor {
   public:
    Refusal() { this->Finish(NoMemory()); }
    void OnDone() override { delete this; }
  };
  try {
    return make();
  } catch (const std::bad_alloc&) {
    return new (std::nothrow) Refusal();
  }
}

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_GUARDED_H_
