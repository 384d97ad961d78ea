// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "telemetry/metrics.h"

#include <prometheus/text_serializer.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "kvcompress/version.h"
#include "telemetry/families.h"

namespace kvcompress {

ServerMetrics::ServerMetrics()
    : rpc_(&registry_),
      quality_(&registry_),
      http_(&registry_),
      connections_(&registry_),
      profiles_(&registry_) {
  inflight_bytes_ =
      &GaugeFamily(&registry_, "kvcompress_inflight_bytes",
                   "Memory reserved by running streams, in bytes.")
           .Add({});
  inflight_budget_bytes_ =
      &GaugeFamily(&registry_, "kvcompress_inflight_budget_bytes",
                   "Limit on kvcompress_inflight_bytes; 0: no budget is set.")
           .Add({});
  tls_expiry_ =
      &GaugeFamily(&registry_,
                   "kvcompress_tls_certificate_expiry_timestamp_seconds",
                   "When the certificate in use expires, in seconds since the "
                   "Unix epoch; 0: no TLS.")
           .Add({});
  tls_reload_failures_ =
      &CounterFamily(&registry_, "kvcompress_tls_reload_failures_total",
                     "Changed TLS files that were rejected.")
           .Add({});
  GaugeFamily(&registry_, "kvcompress_build_info",
              "Always 1; the versions are in the labels.")
      .Add({{"version", kVersion},
            {"api_version", kApiVersion},
            {"format_version", std::to_string(kFormatVersion)}})
      .Set(1);
}

std::string ServerMetrics::Render() const {
  std::vector<prometheus::MetricFamily> families = registry_.Collect();
  for (prometheus::MetricFamily& family : process_.Collect()) {
    families.push_back(std::move(family));
  }
  std::sort(families.begin(), families.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  for (prometheus::MetricFamily& family : families) {
    std::sort(family.metric.begin(), family.metric.end(),
              [](const auto& a, const auto& b) { return a.label < b.label; });
  }
  return prometheus::TextSerializer().Serialize(families);
}

void ServerMetrics::SetMemoryBudget(uint64_t bytes) {
  inflight_budget_bytes_->Set(static_cast<double>(bytes));
}

void ServerMetrics::SetTlsExpiry(absl::Time expiry) {
  tls_expiry_->Set(static_cast<double>(absl::ToUnixSeconds(expiry)));
}

void ServerMetrics::TlsReloadFailed() { tls_reload_failures_->Increment(); }

void ServerMetrics::CallStarted(Method method) { rpc_.CallStarted(method); }

void ServerMetrics::CallHandled(const CallEnd& end) {
  rpc_.CallHandled(end);
  profiles_.CallFailed(end.reason);
}

void ServerMetrics::BytesReceived(Method method, uint64_t bytes) {
  rpc_.BytesReceived(method, bytes);
}

void ServerMetrics::BytesSent(Method method, uint64_t bytes) {
  rpc_.BytesSent(method, bytes);
}

void ServerMetrics::InFlightBytes(int64_t delta) {
  inflight_bytes_->Increment(static_cast<double>(delta));
}

void ServerMetrics::Compressed(const CompressReport& report) {
  quality_.Compressed(report);
  profiles_.Compressed(report);
}

void ServerMetrics::Saved(absl::string_view codec, uint64_t bytes) {
  quality_.Saved(codec, bytes);
}

void ServerMetrics::Decompressed(const DecompressReport& report) {
  profiles_.Decompressed(report);
}

void ServerMetrics::CodecTime(absl::string_view codec, Stage stage,
                              double seconds) {
  quality_.CodecTime(codec, stage, seconds);
}

void ServerMetrics::Warned(const CallNames&, const Warning& warning) {
  quality_.Warned(warning.code);
}

void ServerMetrics::IntegrityFailure(absl::string_view reason) {
  quality_.IntegrityFailure(reason);
}

}  // namespace kvcompress
