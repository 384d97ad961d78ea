// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Connections of the HTTP endpoint: how many are open, and why others were
// closed.
//
// Thread safe.

#ifndef KVCOMPRESS_SERVER_TELEMETRY_HTTP_METRICS_H_
#define KVCOMPRESS_SERVER_TELEMETRY_HTTP_METRICS_H_

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>

#include <array>

#include "telemetry/http_table.h"

namespace kvcompress {

class HttpMetrics {
 public:
  // `registry` must outlive this.
  explicit HttpMetrics(prometheus::Registry* registry);

  // What keeps the metrics up to date, for an endpoint that this outlives.
  HttpObserver observer();

 private:
  prometheus::Gauge* connections_;
  std::array<prometheus::Counter*, kHttpCloseCount> closed_ = {};
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_TELEMETRY_HTTP_METRICS_H_
