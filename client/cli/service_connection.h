// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Where a command's work is done: in this process, or by a server.

#ifndef KVCOMPRESS_CLIENT_CLI_SERVICE_CONNECTION_H_
#define KVCOMPRESS_CLIENT_CLI_SERVICE_CONNECTION_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cli/flags.h"
#include "embedded.h"
#include "kvcompress/client.h"

namespace kvcompress::cli {

class ServiceConnection {
 public:
  // As -server and the flags of TLS say: without an address a service in this
  // process. INVALID_ARGUMENT when a file of TLS cannot be read.
  // `own_connection` is that of ClientOptions, for a server.
  static absl::StatusOr<ServiceConnection> Open(const Flags& flags,
                                                bool own_connection = false);

  const Client& client() const { return *client_; }

  // CompressOptions.profile, by which the service knows the profile to compress
  // with: what -profile says for a server, the digest of the file that it names
  // for the service in this process. Empty for none.
  const std::string& profile() const { return profile_; }

  // Names the server in errors that are about reaching it.
  absl::Status Explain(const absl::Status& status) const;

 private:
  std::string address_;
  std::string profile_;
  // The embedded service outlives the client that uses it.
  std::unique_ptr<EmbeddedServer> embedded_;
  std::unique_ptr<Client> client_;
};

// Says on standard error what a service is, for -verbose.
void LogServer(const v1::GetServerInfoResponse& info);

// A connection that is opened when it is first asked for.
class LazyConnection {
 public:
  // `flags` outlive it.
  explicit LazyConnection(const Flags& flags) : flags_(flags) {}

  // The errors of ServiceConnection::Open. With -verbose, and without -quiet,
  // says on standard error what the service is, once.
  absl::StatusOr<const ServiceConnection*> Get();

 private:
  const Flags& flags_;
  std::optional<ServiceConnection> connection_;
};

}  // namespace kvcompress::cli

#endif  // KVCOMPRESS_CLIENT_CLI_SERVICE_CONNECTION_H_
