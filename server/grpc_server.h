// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// A gRPC server on its addresses: bound, configured, accepting.

#ifndef KVCOMPRESS_SERVER_GRPC_SERVER_H_
#define KVCOMPRESS_SERVER_GRPC_SERVER_H_

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "acceptor.h"
#include "address.h"
#include "call_ticker.h"
#include "config.h"
#include "descriptors.h"
#include "telemetry/grpc_log.h"

namespace kvcompress {

class GrpcServer {
 public:
  // Binds the addresses of `options` and serves `services` on them. `tls` is
  // null for plain text; Unix sockets always have it. `budget` is the memory of
  // all streams, in bytes. UNAVAILABLE, with the address, when one cannot be
  // bound. The services, `tls` and what `events` refer to outlive the server.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(
      const DaemonOptions& options, const std::vector<grpc::Service*>& services,
      const std::shared_ptr<grpc::ServerCredentials>& tls, uint64_t budget,
      const ConnectionLimits& limits, AcceptEvents events);

  // As in the options, with the ports that were chosen.
  const std::vector<ListenAddress>& addresses() const { return addresses_; }

  // Whether new connections are refused because as many are open as may be.
  bool is_full() const { return acceptor_->is_full(); }

  // Accepts no more connections and takes no more calls; waits for those that
  // run, and cancels what is left at the deadline. REQUIRES: once.
  void Shutdown(absl::Time deadline);
  // Ends the wait of Shutdown: cancels every call. Thread safe.
  void CancelCalls();

 private:
  GrpcServer() = default;

  std::vector<ListenAddress> addresses_;
  std::unique_ptr<CallTicker> calls_;
  std::unique_ptr<DebugLines> given_up_;  // tells `calls_`
  std::unique_ptr<grpc::Server> server_;
  // Destroyed before the server that it hands connections to.
  std::unique_ptr<Acceptor> acceptor_;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_GRPC_SERVER_H_
