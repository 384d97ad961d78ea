// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// What gRPC logs: lines for the log of the process, and signs of streams.
//
// gRPC 1.51 calls nobody for a stream that it gives up before it becomes a
// call: one without a path, or one that is reset before its headers were looked
// at. Such a stream takes as much memory as a call until gRPC has let go of it.
// All that gRPC does for it on the thread that reads, before it reads on, is to
// log "Failed call creation" (server.cc), for debugging. So these lines are
// always made, and those who count streams are told of them.

#ifndef KVCOMPRESS_SERVER_TELEMETRY_GRPC_LOG_H_
#define KVCOMPRESS_SERVER_TELEMETRY_GRPC_LOG_H_

#include <grpc/support/log.h>

#include <functional>

namespace kvcompress {

// Has gRPC make lines of every severity. Hands those that GRPC_VERBOSITY asks
// for to `write`, ERROR by default. Once, before other threads use gRPC.
void RouteGrpcLog(gpr_log_func write);

// While it lives, `made` is called for each line for debugging, by the thread
// that logs it, except for lines that `made` causes. It throws nothing. Once
// the destructor returns, it is not being called any more. One at a time.
class DebugLines {
 public:
  explicit DebugLines(std::function<void()> made);
  ~DebugLines();
  DebugLines(const DebugLines&) = delete;
  DebugLines& operator=(const DebugLines&) = delete;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_TELEMETRY_GRPC_LOG_H_
