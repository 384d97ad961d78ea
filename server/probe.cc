// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "probe.h"

#include <grpcpp/create_channel_posix.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "connect.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "http_get.h"

namespace kvcompress {
namespace {

using grpc::health::v1::Health;
using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

absl::Status NotServing(const ListenAddress& address, absl::string_view why) {
  return absl::UnavailableError(absl::StrCat(address.ToString(), ": ", why));
}

// Over a connection of its own: gRPC would ask the proxies of the environment,
// and take the path of a Unix socket for that of a URI.
absl::Status AskHealth(const ListenAddress& address, absl::Duration timeout) {
  const Deadline deadline =
      std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(timeout);
  absl::StatusOr<FileDescriptor> connection = Connect(address, deadline);
  if (!connection.ok()) {
    return NotServing(address, connection.status().message());
  }
  const std::unique_ptr<Health::Stub> stub = Health::NewStub(
      grpc::CreateInsecureChannelFromFd("localhost", connection->Release()));
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  HealthCheckResponse response;
  const grpc::Status status =
      stub->Check(&context, HealthCheckRequest(), &response);
  if (!status.ok()) return NotServing(address, status.error_message());
  if (response.status() != HealthCheckResponse::SERVING) {
    return NotServing(address, "NOT_SERVING");
  }
  return absl::OkStatus();
}

absl::Status AskHealthz(const ListenAddress& address, absl::Duration timeout) {
  const absl::StatusOr<int> status =
      GetHttpStatus(address, "/healthz", timeout);
  if (!status.ok()) return NotServing(address, status.status().message());
  if (*status != 200) {
    return NotServing(address, absl::StrCat("/healthz gave status ", *status));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Probe(const DaemonOptions& options, absl::Duration timeout) {
  const auto socket = std::find_if(
      options.listen.begin(), options.listen.end(),
      [](const ListenAddress& address) { return address.is_unix(); });
  if (socket != options.listen.end()) return AskHealth(*socket, timeout);
  if (options.tls.enabled() && !options.metrics_listen.has_value()) {
    return absl::InvalidArgumentError(
        "--probe needs a Unix socket or a metrics address where there is TLS");
  }
  const ListenAddress address = Reachable(
      options.tls.enabled() ? *options.metrics_listen : options.listen[0]);
  if (address.port == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--probe cannot know the port that the system chose for ",
                     address.ToString()));
  }
  return options.tls.enabled() ? AskHealthz(address, timeout)
                               : AskHealth(address, timeout);
}

}  // namespace kvcompress
