// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// One log line for each finished call, beside the metrics: method, code and
// seconds, nothing a peer has chosen.
//
// Levels: debug for OK, info for what is the client's doing (bad input, a
// cancelled call), warn for what an operator should look into: damaged
// artefacts, refusals for the server's sake, and defects.
//
// Thread safe.

#ifndef KVCOMPRESS_SERVER_TELEMETRY_CALL_LOG_H_
#define KVCOMPRESS_SERVER_TELEMETRY_CALL_LOG_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "observer.h"

namespace kvcompress {

class CallLog final : public CallObserver {
 public:
  // Passes everything on to `next`, which must outlive this.
  explicit CallLog(CallObserver* next) : next_(next) {}

  void CallHandled(Method method, absl::StatusCode code,
                   double seconds) override;

  void CallStarted(Method method) override { next_->CallStarted(method); }
  void BytesReceived(Method method, uint64_t bytes) override {
    next_->BytesReceived(method, bytes);
  }
  void BytesSent(Method method, uint64_t bytes) override {
    next_->BytesSent(method, bytes);
  }
  void InFlightBytes(int64_t delta) override { next_->InFlightBytes(delta); }
  void Compressed(const CompressReport& report) override {
    next_->Compressed(report);
  }
  void CodecTime(absl::string_view codec, Stage stage,
                 double seconds) override {
    next_->CodecTime(codec, stage, seconds);
  }
  void IntegrityFailure(absl::string_view reason) override {
    next_->IntegrityFailure(reason);
  }

 private:
  CallObserver* const next_;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_TELEMETRY_CALL_LOG_H_
