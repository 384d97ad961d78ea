// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "telemetry/http_metrics.h"

#include "telemetry/families.h"

namespace kvcompress {
namespace {

// In the order of HttpClose.
constexpr const char* kReasons[kHttpCloseCount] = {
    "header_timeout", "write_timeout", "evicted", "address_limit",
    "bad_request"};

}  // namespace

HttpMetrics::HttpMetrics(prometheus::Registry* registry)
    : connections_(&GaugeFamily(registry, "kvcompress_http_connections",
                                "Open connections to the metrics address.")
                        .Add({})) {
  auto& closed = CounterFamily(
      registry, "kvcompress_http_connections_closed_total",
      "Connections to the metrics address that were closed without a complete "
      "request or before they read the response, by reason.");
  for (int i = 0; i < kHttpCloseCount; ++i) {
    closed_[i] = &closed.Add({{"reason", kReasons[i]}});
  }
}

HttpObserver HttpMetrics::observer() {
  return {[this](size_t open) { connections_->Set(static_cast<double>(open)); },
          [this](HttpClose reason) {
            closed_[static_cast<int>(reason)]->Increment();
          }};
}

}  // namespace kvcompress
