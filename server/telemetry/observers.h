// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Several observers of calls as one.

#ifndef KVCOMPRESS_SERVER_TELEMETRY_OBSERVERS_H_
#define KVCOMPRESS_SERVER_TELEMETRY_OBSERVERS_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "observer.h"

namespace kvcompress {

// Notifies each of them in turn. They must outlive it. Thread safe.
class Observers final : public CallObserver {
 public:
  explicit Observers(std::vector<CallObserver*> all) : all_(std::move(all)) {}

  void CallStarted(Method method) override {
    for (CallObserver* each : all_) each->CallStarted(method);
  }
  void CallHandled(const CallEnd& end) override {
    for (CallObserver* each : all_) each->CallHandled(end);
  }
  void BytesReceived(Method method, uint64_t bytes) override {
    for (CallObserver* each : all_) each->BytesReceived(method, bytes);
  }
  void BytesSent(Method method, uint64_t bytes) override {
    for (CallObserver* each : all_) each->BytesSent(method, bytes);
  }
  void InFlightBytes(int64_t delta) override {
    for (CallObserver* each : all_) each->InFlightBytes(delta);
  }
  void Compressed(const CompressReport& report) override {
    for (CallObserver* each : all_) each->Compressed(report);
  }
  void Saved(absl::string_view codec, uint64_t bytes) override {
    for (CallObserver* each : all_) each->Saved(codec, bytes);
  }
  void Decompressed(const DecompressReport& report) override {
    for (CallObserver* each : all_) each->Decompressed(report);
  }
  void Warned(const CallNames& names, const Warning& warning) override {
    for (CallObserver* each : all_) each->Warned(names, warning);
  }
  void CodecTime(absl::string_view codec, Stage stage,
                 double seconds) override {
    for (CallObserver* each : all_) each->CodecTime(codec, stage, seconds);
  }
  void IntegrityFailure(absl::string_view reason) override {
    for (CallObserver* each : all_) each->IntegrityFailure(reason);
  }

 private:
  const std::vector<CallObserver*> all_;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_TELEMETRY_OBSERVERS_H_
