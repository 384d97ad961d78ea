// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Everything on the /metrics page; server/OPERATIONS.md lists the series. Label
// sets are closed. What alerts count is there from the start, at zero; series
// by method and by codec come with their first use.
//
// Thread safe.

#ifndef KVCOMPRESS_SERVER_TELEMETRY_METRICS_H_
#define KVCOMPRESS_SERVER_TELEMETRY_METRICS_H_

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "observer.h"
#include "telemetry/connection_metrics.h"
#include "telemetry/http_metrics.h"
#include "telemetry/process_metrics.h"
#include "telemetry/profile_metrics.h"
#include "telemetry/quality_metrics.h"
#include "telemetry/rpc_metrics.h"

namespace kvcompress {

class ServerMetrics final : public CallObserver {
 public:
  // Make it early: it dates the start of the process.
  ServerMetrics();

  // The page in Prometheus's text format, version 0.0.4, in alphabetical order.
  std::string Render() const;

  // Bound on the bytes in flight; 0 for none, as it is without a call.
  void SetMemoryBudget(uint64_t bytes);

  // The certificate that the server shows in TLS, and files that were not fit
  // to follow it.
  void SetTlsExpiry(absl::Time expiry);
  void TlsReloadFailed();

  ConnectionMetrics& connections() { return connections_; }
  ProfileMetrics& profiles() { return profiles_; }
  // What counts the connections of an endpoint that this outlives.
  HttpObserver http_observer() { return http_.observer(); }

  void CallStarted(Method method) override;
  void CallHandled(const CallEnd& end) override;
  void BytesReceived(Method method, uint64_t bytes) override;
  void BytesSent(Method method, uint64_t bytes) override;
  void InFlightBytes(int64_t delta) override;
  void Compressed(const CompressReport& report) override;
  void Saved(absl::string_view codec, uint64_t bytes) override;
  void Decompressed(const DecompressReport& report) override;
  void CodecTime(absl::string_view codec, Stage stage, double seconds) override;
  void IntegrityFailure(absl::string_view reason) override;
  void Warned(const CallNames& names, const Warning& warning) override;

 private:
  ProcessMetrics process_;
  prometheus::Registry registry_;
  RpcMetrics rpc_;
  QualityMetrics quality_;
  HttpMetrics http_;
  prometheus::Gauge* inflight_bytes_;
  prometheus::Gauge* inflight_budget_bytes_;
  prometheus::Gauge* tls_expiry_;
  prometheus::Counter* tls_reload_failures_;
  ConnectionMetrics connections_;
  ProfileMetrics profiles_;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_TELEMETRY_METRICS_H_
