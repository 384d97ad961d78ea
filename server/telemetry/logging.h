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

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>

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

// Sets up the default logger, and routes what gRPC and protobuf write to it at
// the level it has there (GRPC_VERBOSITY says which gRPC emits: ERROR by
// default). Clients can have them write: of each, kMaxLibraryLines in
// kLibraryInterval are let through, and then how many were not. Once, before
// other threads log.
void SetUpLogging(LogLevel level, LogFormat format);

inline constexpr int kMaxLibraryLines = 20;
inline constexpr std::chrono::seconds kLibraryInterval{10};

// Lets `most` lines through in each `interval`. Thread safe.
class LineLimit {
 public:
  using Clock = std::chrono::steady_clock;

  // Lets `most` lines through in an interval.
  explicit LineLimit(int most = kMaxLibraryLines,
                     Clock::duration interval = kLibraryInterval)
      : most_(most), interval_(interval) {}

  // Whether a line at `now` is let through; `*dropped` is the number of those
  // that were not, since the one before.
  bool Pass(Clock::time_point now, uint64_t* dropped);

 private:
  const int most_;
  const Clock::duration interval_;
  std::mutex mutex_;
  // Guarded by the mutex.
  Clock::time_point begin_ = Clock::time_point::min();
  int passed_ = 0;
  uint64_t dropped_ = 0;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_TELEMETRY_LOGGING_H_
