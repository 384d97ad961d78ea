// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Counters and latencies of calls, by method and code, reached by index: no
// look-up in a call's path. Counters of calls, of bytes, and of the errors and
// rejections that rules count, are there from the start; durations and other
// codes from their first use.
//
// Thread safe.

#ifndef KVCOMPRESS_SERVER_TELEMETRY_RPC_METRICS_H_
#define KVCOMPRESS_SERVER_TELEMETRY_RPC_METRICS_H_

#include <prometheus/counter.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <array>
#include <cstdint>

#include "absl/status/status.h"
#include "observer.h"
#include "telemetry/families.h"

namespace kvcompress {

class RpcMetrics {
 public:
  // `registry` must outlive this.
  explicit RpcMetrics(prometheus::Registry* registry);

  // As in CallObserver.
  void CallStarted(Method method);
  void CallHandled(const CallEnd& end);
  void BytesReceived(Method method, uint64_t bytes);
  void BytesSent(Method method, uint64_t bytes);

 private:
  // The canonical codes, 0 (OK) to 16 (UNAUTHENTICATED).
  static constexpr int kCodeCount = 17;

  using Counter = OnFirstUse<prometheus::Counter>;
  using Histogram = OnFirstUse<prometheus::Histogram>;

  struct PerMethod {
    prometheus::Counter* grpc_started;
    std::array<Counter, kCodeCount> grpc_handled;
    Histogram grpc_handling_seconds;
    prometheus::Counter* requests;
    std::array<Counter, kCodeCount> errors;  // none for OK
    Histogram duration_seconds;
    prometheus::Counter* input_bytes;
    prometheus::Counter* output_bytes;
  };

  PerMethod& of(Method method) { return methods_[static_cast<int>(method)]; }
  void AddGrpcSeries(prometheus::Registry* registry);
  void AddOwnSeries(prometheus::Registry* registry);

  std::array<PerMethod, kMethodCount> methods_;
  prometheus::Counter* rejected_budget_;
  prometheus::Counter* rejected_limit_;
  prometheus::Counter* rejected_draining_;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_TELEMETRY_RPC_METRICS_H_
