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

// The errors that recording rules and alerts count. An increase from nothing to
// 1 is none to Prometheus: the first error shows only in a series that was 0.
constexpr absl::StatusCode kCodesOfRules[] = {
    absl::StatusCode::kUnknown, absl::StatusCode::kDeadlineExceeded,
    absl::StatusCode::kResourceExhausted, absl::StatusCode::kInternal,
    absl::StatusCode::kUnavailable};

}  // namespace

RpcMetrics::RpcMetrics(prometheus::Registry* registry) {
  AddGrpcSeries(registry);
  AddOwnSeries(registry);
}

void RpcMetrics::AddGrpcSeries(prometheus::Registry* registry) {
  auto* started = &CounterFamily(registry, "grpc_server_started_total",
                                 "Calls started on the server.");
  auto* handled =
      &CounterFamily(registry, "grpc_server_handled_total",
                     "Calls completed on the server, whatever the outcome.");
  auto* handling =
      &HistogramFamily(registry, "grpc_server_handling_seconds",
                       "Time from the start of a call to its end, in seconds.");
  for (int i = 0; i < kMethodCount; ++i) {
    const auto method = static_cast<Method>(i);
    PerMethod& series = methods_[i];
    const prometheus::Labels labels = {
        {"grpc_type", std::string(MethodType(method))},
        {"grpc_service", kServiceName},
        {"grpc_method", std::string(MethodName(method))}};
    series.grpc_started = &started->Add(labels);
    series.grpc_handling_seconds.Bind([handling, labels] {
      return &handling->Add(labels, Boundaries(kHandlingBuckets));
    });
    for (int code = 0; code < kCodeCount; ++code) {
      prometheus::Labels with_code = labels;
      with_code["grpc_code"] = kGrpcCodeNames[code];
      series.grpc_handled[code].Bind(
          [handled, with_code] { return &handled->Add(with_code); });
    }
    // Started less handled is how many run, from the first call on.
    series.grpc_handled[0]->Increment(0);
  }
}

void RpcMetrics::AddOwnSeries(prometheus::Registry* registry) {
  auto* requests =
      &CounterFamily(registry, "kvcompress_requests_total", "Calls received.");
  auto* errors = &CounterFamily(registry, "kvcompress_errors_total",
                                "Calls that ended with an error.");
  auto* durations = &HistogramFamily(
      registry, "kvcompress_request_duration_seconds",
      "Time from the start of a call to its end, in seconds; waiting for the "
      "client included.");
  auto* input =
      &CounterFamily(registry, "kvcompress_input_bytes_total",
                     "Bytes of request messages of streams, as serialized.");
  auto* output =
      &CounterFamily(registry, "kvcompress_output_bytes_total",
                     "Bytes of response messages of streams, as serialized.");
  for (int i = 0; i < kMethodCount; ++i) {
    PerMethod& series = methods_[i];
    const prometheus::Labels labels = {
        {"method", std::string(MethodName(static_cast<Method>(i)))}};
    series.requests = &requests->Add(labels);
    series.duration_seconds.Bind([durations, labels] {
      return &durations->Add(labels, Boundaries(kDurationBuckets));
    });
    series.input_bytes = &input->Add(labels);
    series.output_bytes = &output->Add(labels);
    for (int code = 1; code < kCodeCount; ++code) {
      prometheus::Labels with_code = labels;
      with_code["code"] =
          absl::StatusCodeToString(static_cast<absl::StatusCode>(code));
      series.errors[code].Bind(
          [errors, with_code] { return &errors->Add(with_code); });
    }
    for (const absl::StatusCode code : kCodesOfRules) {
      series.errors[static_cast<int>(code)]->Increment(0);
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
