// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "probe.h"

#include <civetweb.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <algorithm>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "grpc/health/v1/health.grpc.pb.h"

namespace kvcompress {
namespace {

using grpc::health::v1::Health;
using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

// Where this machine reaches what listens on `address`.
ListenAddress Reachable(ListenAddress address) {
  if (address.host == "0.0.0.0") address.host = "127.0.0.1";
  if (address.host == "::") address.host = "::1";
  return address;
}

absl::Status NotServing(const ListenAddress& address, absl::string_view why) {
  return absl::UnavailableError(absl::StrCat(address.ToString(), ": ", why));
}

absl::Status AskHealth(const ListenAddress& address, absl::Duration timeout) {
  const std::unique_ptr<Health::Stub> stub =
      Health::NewStub(grpc::CreateChannel(address.ToString(),
                                          grpc::InsecureChannelCredentials()));
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
  char error[256] = "";
  mg_init_library(0);
  const std::unique_ptr<mg_connection, void (*)(mg_connection*)> connection(
      mg_connect_client(address.host.c_str(), address.port, /*use_ssl=*/0,
                        error, sizeof(error)),
      mg_close_connection);
  if (connection == nullptr) return NotServing(address, error);
  mg_printf(connection.get(),
            "GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
            "Connection: close\r\n\r\n");
  if (mg_get_response(connection.get(), error, sizeof(error),
                      static_cast<int>(absl::ToInt64Milliseconds(timeout))) <
      0) {
    return NotServing(address, error);
  }
  const int code = mg_get_response_info(connection.get())->status_code;
  if (code != 200) {
    return NotServing(address, absl::StrCat("/healthz gave status ", code));
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
