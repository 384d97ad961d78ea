// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "telemetry/grpc_log.h"

#include <atomic>
#include <mutex>
#include <shared_mutex>
#include <utility>

namespace kvcompress {
namespace {

// As of RouteGrpcLog. Severities are numbers that grow; the lowest that is
// asked for.
std::atomic<gpr_log_func> write_line = nullptr;
std::atomic<int> asked_for = GPR_LOG_SEVERITY_ERROR + 1;

struct Listener {
  std::shared_mutex mutex;
  std::function<void()> made;  // guarded by the mutex
};

// gRPC's threads may log until the process ends.
Listener& TheListener() {
  static auto* const listener = new Listener;
  return *listener;
}

// Whether this thread is in `made`: with GRPC_TRACE, all of gRPC may log.
thread_local bool telling = false;

void TakeLine(gpr_log_func_args* args) {
  if (args->severity == GPR_LOG_SEVERITY_DEBUG && !telling) {
    telling = true;
    Listener& listener = TheListener();
    const std::shared_lock lock(listener.mutex);
    if (listener.made) listener.made();
    telling = false;
  }
  if (args->severity >= asked_for) write_line.load()(args);
}

}  // namespace

void RouteGrpcLog(gpr_log_func write) {
  gpr_log_verbosity_init();  // reads GRPC_VERBOSITY, unless gRPC has
  int lowest = GPR_LOG_SEVERITY_ERROR + 1;
  for (const gpr_log_severity severity :
       {GPR_LOG_SEVERITY_ERROR, GPR_LOG_SEVERITY_INFO,
        GPR_LOG_SEVERITY_DEBUG}) {
    if (gpr_should_log(severity) != 0) lowest = severity;
  }
  write_line = write;
  asked_for = lowest;
  gpr_set_log_function(TakeLine);
  gpr_set_log_verbosity(GPR_LOG_SEVERITY_DEBUG);
}

DebugLines::DebugLines(std::function<void()> made) {
  Listener& listener = TheListener();
  const std::unique_lock lock(listener.mutex);
  listener.made = std::move(made);
}

DebugLines::~DebugLines() {
  Listener& listener = TheListener();
  const std::unique_lock lock(listener.mutex);
  listener.made = nullptr;
}

}  // namespace kvcompress
