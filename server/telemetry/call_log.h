// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// One log line for each finished call: method, code, reason, seconds, and the
// names of the call; nothing else that a peer has chosen. And one for each
// warning of a report: its code and message.
//
// Levels: debug for OK, warn for warnings of reports, info for what is the
// client's doing (bad input, a cancelled call), warn for what an operator
// should look into: damaged artefacts, refusals for the server's sake, and
// defects. Of info and of warn, kMaxCallLines in kCallInterval are written,
// and then how many were not: refused calls can come by the thousand in a
// second, and metrics count them. Of warnings of reports, kMaxReportLines.
//
// Thread safe.

#ifndef KVCOMPRESS_SERVER_TELEMETRY_CALL_LOG_H_
#define KVCOMPRESS_SERVER_TELEMETRY_CALL_LOG_H_

#include <chrono>
#include <functional>
#include <utility>

#include "observer.h"
#include "telemetry/logging.h"

namespace kvcompress {

inline constexpr int kMaxCallLines = 100;
inline constexpr int kMaxReportLines = 10;
inline constexpr std::chrono::seconds kCallInterval{10};

class CallLog final : public CallObserver {
 public:
  using Clock = LineLimit::Clock;

  explicit CallLog(std::function<Clock::time_point()> now = Clock::now)
      : now_(std::move(now)) {}

  void CallHandled(const CallEnd& end) override;
  void Warned(const CallNames& names, const Warning& warning) override;

 private:
  const std::function<Clock::time_point()> now_;
  LineLimit infos_{kMaxCallLines, kCallInterval};
  LineLimit warnings_{kMaxCallLines, kCallInterval};
  LineLimit of_reports_{kMaxReportLines, kCallInterval};
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_TELEMETRY_CALL_LOG_H_
