// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "client/cli/service_connection.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/status.h"
#include "kvcompress/error.h"

namespace kvcompress::cli {

absl::StatusOr<ServiceConnection> ServiceConnection::Open(
    const std::string& address) {
  ServiceConnection connection;
  connection.address_ = address;
  if (!address.empty()) {
    connection.client_ = std::make_unique<Client>(address);
    return connection;
  }
  absl::StatusOr<std::unique_ptr<EmbeddedServer>> server =
      EmbeddedServer::Start();
  if (!server.ok()) return server.status();
  connection.embedded_ = *std::move(server);
  connection.client_ =
      std::make_unique<Client>(connection.embedded_->channel());
  return connection;
}

absl::Status ServiceConnection::Explain(const absl::Status& status) const {
  const bool unreachable =
      absl::IsUnavailable(status) || absl::IsUnimplemented(status);
  if (address_.empty() || !unreachable || GetErrorDetail(status)) return status;
  return Annotate(
      status,
      absl::StrCat("server ", address_, ": ",
                   status.message().empty() ? "no such service there" : ""));
}

}  // namespace kvcompress::cli
