// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "telemetry/rpc_metrics.h"

#include <string>

#include "telemetry/families.h"

namespace kvcompress {
namespace {

constexpr char kServiceName[] = "kvcompress.v1.CompressionService";

// As go-grpc-prometheus names codes in `grpc_code`, which dashboards and alerts
// made for these metrics rely on.
constexpr const char* kGrpcCodeNames[] = {"OK",
                                          "Canceled",
                                          "Unknown",
                                          "InvalidArgument",
                                          "DeadlineExceeded",
                                          "NotFound",
                                          "AlreadyExists",
                                          "PermissionDenied",
                                          "ResourceExhausted",
                                          "FailedPrecondition",
                                          "Aborted",
                                          "OutOfRange",
                                          "Unimplemented",
                                          "Internal",
                                          "Unavailable",
                                          "DataLoss",
                                          "Unauthenticated"};

// The defaults of Prometheus client libraries.
constexpr double kHandlingBuckets[] = {.005, .01, .025, .05, .1, .25,
                                       .5,   1,   2.5,  5,   10};
// From a small unary call to a cache of many gigabytes on a slow line.
constexpr double kDurationBuckets[] = {.001, .0025, .005, .01, .025, .05,
                                       .1,   .25,   .5,   1,   2.5,  5,
                                       10,   30,    60,   120, 300,  600};

}  // namespace

RpcMetrics::RpcMetrics(prometheus::Registry* registry) {
  AddGrpcSeries(registry);
  AddOwnSeries(registry);
}

void RpcMetrics::AddGrpcSeries(prometheus::Registry* registry) {
  auto& started = CounterFamily(registry, "grpc_server_started_total",
                                "Calls started on the server.");
  auto& handled =
      CounterFamily(registry, "grpc_server_handled_total",
                    "Calls completed on the server, whatever the outcome.");
  auto& handling =
      HistogramFamily(registry, "grpc_server_handling_seconds",
                      "Time from the start of a call to its end, in seconds.");
  for (int i = 0; i < kMethodCount; ++i) {
    const auto method = static_cast<Method>(i);
    const prometheus::Labels labels = {
        {"grpc_type", std::string(MethodType(method))},
        {"grpc_service", kServiceName},
        {"grpc_method", std::string(MethodName(method))}};
    methods_[i].grpc_started = &started.Add(labels);
    methods_[i].grpc_handling_seconds =
        &handling.Add(labels, Boundaries(kHandlingBuckets));
    for (int code = 0; code < kCodeCount; ++code) {
      prometheus::Labels with_code = labels;
      with_code["grpc_code"] = kGrpcCodeNames[code];
      methods_[i].grpc_handled[code] = &handled.Add(with_code);
    }
  }
}

void RpcMetrics::AddOwnSeries(prometheus::Registry* registry) {
  auto& requests =
      CounterFamily(registry, "kvcompress_requests_total", "Calls received.");
  auto& errors = CounterFamily(registry, "kvcompress_errors_total",
                               "Calls that ended with an error.");
  auto& durations = HistogramFamily(
      registry, "kvcompress_request_duration_seconds",
      "Time from the start of a call to its end, in seconds; waiting for the "
      "client included.");
  auto& input =
      CounterFamily(registry, "kvcompress_input_bytes_total",
                    "Bytes of request messages of streams, as serialized.");
  auto& output =
      CounterFamily(registry, "kvcompress_output_bytes_total",
                    "Bytes of response messages of streams, as serialized.");
  for (int i = 0; i < kMethodCount; ++i) {
    const std::string name(MethodName(static_cast<Method>(i)));
    methods_[i].requests = &requests.Add({{"method", name}});
    methods_[i].duration_seconds =
        &durations.Add({{"method", name}}, Boundaries(kDurationBuckets));
    methods_[i].input_bytes = &input.Add({{"method", name}});
    methods_[i].output_bytes = &output.Add({{"method", name}});
    for (int code = 1; code < kCodeCount; ++code) {
      methods_[i].errors[code] = &errors.Add(
          {{"method", name},
           {"code",
            absl::StatusCodeToString(static_cast<absl::StatusCode>(code))}});
    }
  }
  auto& rejected = CounterFamily(registry, "kvcompress_requests_rejected_total",
                                 "Calls the server rejected to protect itself: "
                                 "budget (RESOURCE_EXHAUSTED), limit "
                                 "(OUT_OF_RANGE) or draining (UNAVAILABLE).");
  rejected_budget_ = &rejected.Add({{"reason", "budget"}});
  rejected_limit_ = &rejected.Add({{"reason", "limit"}});
  rejected_draining_ = &rejected.Add({{"reason", "draining"}});
}

void RpcMetrics::CallStarted(Method method) {
  of(method).grpc_started->Increment();
  of(method).requests->Increment();
}

void RpcMetrics::CallHandled(const CallEnd& end) {
  const absl::StatusCode code = end.code;
  int index = static_cast<int>(code);
  if (index < 0 || index >= kCodeCount) {
    index = static_cast<int>(absl::StatusCode::kUnknown);
  }
  PerMethod& series = of(end.method);
  series.grpc_handled[index]->Increment();
  series.grpc_handling_seconds->Observe(end.seconds);
  series.duration_seconds->Observe(end.seconds);
  if (index != 0) series.errors[index]->Increment();
  if (code == absl::StatusCode::kResourceExhausted) {
    rejected_budget_->Increment();
  } else if (code == absl::StatusCode::kOutOfRange) {
    rejected_limit_->Increment();
  } else if (code == absl::StatusCode::kUnavailable) {
    rejected_draining_->Increment();
  }
}

void RpcMetrics::BytesReceived(Method method, uint64_t bytes) {
  of(method).input_bytes->Increment(static_cast<double>(bytes));
}

void RpcMetrics::BytesSent(Method method, uint64_t bytes) {
  of(method).output_bytes->Increment(static_cast<double>(bytes));
}

}  // namespace kvcompress
