// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "telemetry/call_log.h"

#include <spdlog/spdlog.h>

#include <cstdint>

#include "absl/strings/str_cat.h"

namespace kvcompress {
namespace {

spdlog::level::level_enum LevelOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk:
      return spdlog::level::debug;
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kUnimplemented:
      return spdlog::level::info;
    default:
      return spdlog::level::warn;
  }
}

}  // namespace

void CallLog::CallHandled(const CallEnd& end) {
  const spdlog::level::level_enum level = LevelOf(end.code);
  if (!spdlog::should_log(level)) return;
  if (level != spdlog::level::debug) {
    LineLimit& limit = level == spdlog::level::info ? infos_ : warnings_;
    uint64_t dropped = 0;
    if (!limit.Pass(now_(), &dropped)) return;
    if (dropped > 0) {
      spdlog::log(level, "{} more calls that failed were not logged", dropped);
    }
  }
  const absl::string_view name = MethodName(end.method);
  const LogNames names(end.names);
  spdlog::log(level, "{} ended with {}{} after {:.6f} s",
              fmt::string_view(name.data(), name.size()),
              absl::StatusCodeToString(end.code),
              end.reason.empty() ? "" : absl::StrCat(", ", end.reason, ","),
              end.seconds);
}

void CallLog::Warned(const CallNames& call, const Warning& warning) {
  if (!spdlog::should_log(spdlog::level::warn)) return;
  uint64_t dropped = 0;
  if (!of_reports_.Pass(now_(), &dropped)) return;
  if (dropped > 0) {
    spdlog::warn("{} more warnings of reports were not logged", dropped);
  }
  const LogNames names(call);
  spdlog::warn("{}: {}", warning.code, warning.message);
}

}  // namespace kvcompress
