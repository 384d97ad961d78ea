// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// /statusz: what a server is doing, on one page of HTML for a person in a
// browser, with charts. For machines there is /metrics.
//
// Thread safe.

#ifndef KVCOMPRESS_SERVER_TELEMETRY_STATUS_PAGE_H_
#define KVCOMPRESS_SERVER_TELEMETRY_STATUS_PAGE_H_

#include <array>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "observer.h"
#include "telemetry/load_history.h"

namespace kvcompress {

class StatusPage final : public CallObserver {
 public:
  // How many errors are kept.
  static constexpr size_t kErrors = 20;

  // Make it early: it dates the start of the process.
  StatusPage();

  // A line of the first table, new or changed. What depends on the time is made
  // at every rendering.
  void SetFact(absl::string_view name, absl::string_view value);

  // Bound on the bytes in flight; 0 for none, as it is without a call.
  void SetMemoryBudget(uint64_t bytes);

  // HTML, with everything in it escaped. It needs nothing from elsewhere.
  std::string Render(bool serving, absl::Time now) const;

  void CallStarted(Method method) override;
  void CallHandled(const CallEnd& end) override;
  void BytesReceived(Method method, uint64_t bytes) override;
  void BytesSent(Method method, uint64_t bytes) override;
  void InFlightBytes(int64_t delta) override;
  void Compressed(const CompressReport& report) override;

 private:
  struct PerMethod {
    uint64_t started = 0, ok = 0, failed = 0;
    uint64_t received = 0, sent = 0;  // bytes
    double seconds = 0;               // of those that ended
  };
  struct PerCodec {
    absl::string_view name;
    uint64_t caches = 0;
    uint64_t elements = 0, compressed = 0;  // compressed in bytes
    double worst_snr_db = 0;                // of a cache; valid if any
    bool any_snr = false;
    uint64_t failed = 0;  // caches that are outside the thresholds
  };

  // Parts of the page. REQUIRES: the mutex is held.
  std::string CallsChart(absl::Time now) const;
  std::string MemoryChart(absl::Time now) const;
  std::string CodecCharts() const;
  std::string ServerTable(absl::Time now) const;
  std::string CallsTable() const;
  std::string CodecsTable() const;
  std::string ErrorsTable() const;

  const absl::Time start_;
  mutable std::mutex mutex_;
  // Guarded by the mutex.
  std::vector<std::pair<std::string, std::string>> facts_;
  std::array<PerMethod, kMethodCount> methods_;
  std::vector<PerCodec> codecs_;
  int64_t inflight_bytes_ = 0;
  uint64_t budget_bytes_ = 0;
  mutable LoadHistory history_;
  std::deque<std::pair<absl::Time, CallEnd>> errors_;  // the newest first
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_TELEMETRY_STATUS_PAGE_H_
