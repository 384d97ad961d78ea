// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Series of the connections of gRPC, and of whether new ones are served.
// Internal to telemetry.

#ifndef KVCOMPRESS_SERVER_TELEMETRY_CONNECTION_METRICS_H_
#define KVCOMPRESS_SERVER_TELEMETRY_CONNECTION_METRICS_H_

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>

#include "acceptor.h"

namespace kvcompress {

// Thread safe.
class ConnectionMetrics {
 public:
  explicit ConnectionMetrics(prometheus::Registry* registry);

  void SetLimit(int limit) { limit_->Set(limit); }
  void SetOpen(int open) { open_->Set(open); }
  void Accepted() { accepted_->Increment(); }
  void Refused(Refusal why) { refused_[static_cast<size_t>(why)]->Increment(); }
  void Unread() { unread_->Increment(); }
  void Shed() { shed_->Increment(); }
  void SetReachable(bool reachable) { reachable_->Set(reachable ? 1 : 0); }

 private:
  prometheus::Gauge* open_;
  prometheus::Gauge* limit_;
  prometheus::Counter* accepted_;
  prometheus::Counter* refused_[kRefusalCount];
  prometheus::Counter* unread_;
  prometheus::Counter* shed_;
  prometheus::Gauge* reachable_;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_TELEMETRY_CONNECTION_METRICS_H_
