// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The process's log: spdlog's default logger on stderr, one line per message.
//
// Text: `2026-01-31T12:00:00.123456Z info message`, control characters of the
// message escaped. JSON: an object with `time`, `level` and `message`, always
// valid JSON: bytes that are not UTF-8 become U+FFFD. Times are UTC. Lines
// about a call also have its names: ` request_id=ID traceparent=PARENT` at the
// end, or as members of the object.

#ifndef KVCOMPRESS_SERVER_TELEMETRY_LOGGING_H_
#define KVCOMPRESS_SERVER_TELEMETRY_LOGGING_H_

#include <spdlog/common.h>
#include <spdlog/formatter.h>

#include <memory>

#include "config.h"
#include "observer.h"

namespace kvcompress {

// The format of a line, for any spdlog sink.
std::unique_ptr<spdlog::formatter> NewLogFormatter(LogFormat format);

// While it lives, what this thread logs is about the call of these names, which
// must outlive it.
class LogNames {
 public:
  explicit LogNames(const CallNames& names);
  ~LogNames();
  LogNames(const LogNames&) = delete;
  LogNames& operator=(const LogNames&) = delete;
};

// Sets up the default logger, and routes gRPC's own messages to it at the level
// they have there (GRPC_VERBOSITY says which gRPC gives out: ERROR by default).
// Once, before other threads log.
void SetUpLogging(LogLevel level, LogFormat format);

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_TELEMETRY_LOGGING_H_
