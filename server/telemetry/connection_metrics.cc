// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "telemetry/connection_metrics.h"

#include "telemetry/families.h"

namespace kvcompress {
namespace {

// In the order of Refusal.
constexpr const char* kRefusals[kRefusalCount] = {"limit", "host_limit",
                                                  "descriptors"};

}  // namespace

ConnectionMetrics::ConnectionMetrics(prometheus::Registry* registry) {
  open_ = &GaugeFamily(registry, "kvcompress_connections",
                       "Open gRPC connections, as of at most a second ago.")
               .Add({});
  limit_ = &GaugeFamily(registry, "kvcompress_connections_limit",
                        "Limit on kvcompress_connections.")
                .Add({});
  accepted_ = &CounterFamily(registry, "kvcompress_connections_accepted_total",
                             "gRPC connections accepted, including those of "
                             "the server's self-checks.")
                   .Add({});
  auto& refused =
      CounterFamily(registry, "kvcompress_connections_refused_total",
                    "gRPC connections refused, by reason.");
  for (int i = 0; i < kRefusalCount; ++i) {
    refused_[i] = &refused.Add({{"reason", kRefusals[i]}});
  }
  unread_ =
      &CounterFamily(registry, "kvcompress_connections_unread_total",
                     "Connections of gRPC that were reset because the client "
                     "did not read what waited for it.")
           .Add({});
  shed_ = &CounterFamily(registry, "kvcompress_connections_shed_total",
                         "Connections of gRPC that were reset because they "
                         "had the most streams when there were too many.")
               .Add({});
  reachable_ = &GaugeFamily(registry, "kvcompress_reachable",
                            "1 while the server can reach itself on every "
                            "address, else 0.")
                    .Add({});
  reachable_->Set(1);
}

}  // namespace kvcompress
