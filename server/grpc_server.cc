// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "grpc_server.h"

#include <grpc/grpc.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/server_builder.h>

#include <algorithm>
#include <utility>

#include "flow_control.h"
#include "memory_limit.h"
#include "message_settings.h"
#include "stream_counts.h"

namespace kvcompress {
namespace {

using External = grpc::experimental::ExternalConnectionAcceptor;
using ExternalType =
    grpc::ServerBuilder::experimental_type::ExternalConnectionType;

// A connection is given up when a ping has no answer for 20 seconds; pings go
// out after a minute of silence. Clients may ping as often as every 20 seconds.
constexpr int kKeepaliveTimeMs = 60'000;
constexpr int kKeepaliveTimeoutMs = 20'000;
constexpr int kMinPingIntervalMs = 20'000;
// How long a client may take for the handshake of TLS and the preface of
// HTTP/2: who sends neither holds a connection no longer.
constexpr int kHandshakeTimeoutMs = 20'000;

// How long after --stall-seconds a connection is reset whose client reads
// nothing: by then its calls have been told why they end, and as much is left
// for a network that loses packets where that time is short.
constexpr absl::Duration kUnreadMargin = absl::Seconds(5);

// Calls at a time on one connection: further ones wait in a client that keeps
// to the protocol, and end the connection of one that does not.
constexpr uint64_t kMaxConcurrentStreams = 1024;

// What gRPC takes from a connection at a time, in bytes: a stream of 15 bytes
// becomes a call, and nothing is counted or closed before all of them are made.
// Without BoundReadsOfGrpc it takes more.
constexpr int kMaxReadBytes = 8 << 10;

int Milliseconds(absl::Duration duration) {
  return static_cast<int>(absl::ToInt64Milliseconds(duration));
}

void SetChannelArguments(const DaemonOptions& options, uint64_t most_streams,
                         grpc::ServerBuilder* builder) {
  SetMessages(options.max_message_bytes, builder);
  SetFlowControl(builder);
  builder->AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                              kHandshakeTimeoutMs);
  builder->AddChannelArgument(
      GRPC_ARG_MAX_CONCURRENT_STREAMS,
      static_cast<int>(std::min(kMaxConcurrentStreams, most_streams / 2)));
  builder->AddChannelArgument(GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, kMaxReadBytes);
  builder->AddChannelArgument(GRPC_ARG_ENABLE_CHANNELZ, 1);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                              kKeepaliveTimeoutMs);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder->AddChannelArgument(
      GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
      kMinPingIntervalMs);
  if (options.max_connection_age > absl::ZeroDuration()) {
    builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS,
                                Milliseconds(options.max_connection_age));
  }
  if (options.max_connection_idle > absl::ZeroDuration()) {
    builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS,
                                Milliseconds(options.max_connection_idle));
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(
    const DaemonOptions& options, const std::vector<grpc::Service*>& services,
    const std::shared_ptr<grpc::ServerCredentials>& tls, uint64_t budget,
    const ConnectionLimits& limits, AcceptEvents events) {
  std::unique_ptr<GrpcServer> self(new GrpcServer);
  self->addresses_ = options.listen;
  const uint64_t memory = MemoryLimit();
  const uint64_t most_streams = MostStreams(budget, memory);
  self->calls_ = std::make_unique<CallTicker>(most_streams / 16 + 1);
  self->given_up_ = std::make_unique<DebugLines>(
      [calls = self->calls_.get()] { calls->Add(); });
  absl::StatusOr<std::unique_ptr<Acceptor>> acceptor =
      Acceptor::Bind(&self->addresses_,
                     {.unix_mode = options.unix_socket_mode,
                      .limits = limits,
                      .unread = options.stall + kUnreadMargin,
                      .calls = self->calls_.get(),
                      .streams = CountStreams,
                      .most_streams = most_streams},
                     std::move(events));
  if (!acceptor.ok()) return acceptor.status();

  grpc::EnableDefaultHealthCheckService(false);
  grpc::ServerBuilder builder;
  SetChannelArguments(options, most_streams, &builder);
  builder.SetContextAllocator(self->calls_->NewCounter());
  // A second fence, around what gRPC buffers: it ends streams without an error
  // that says why, so the first one, which does, has to be nearer.
  builder.SetResourceQuota(
      grpc::ResourceQuota("kvcompress").Resize(BufferQuota(budget, memory)));
  for (grpc::Service* service : services) builder.RegisterService(service);
  std::shared_ptr<External> plain =
      builder.experimental().AddExternalConnectionAcceptor(
          ExternalType::FROM_FD, grpc::InsecureServerCredentials());
  std::shared_ptr<External> encrypted =
      tls == nullptr ? plain
                     : builder.experimental().AddExternalConnectionAcceptor(
                           ExternalType::FROM_FD, tls);
  self->server_ = builder.BuildAndStart();
  if (self->server_ == nullptr) {
    return absl::InternalError("gRPC could not be started");
  }

  std::vector<std::shared_ptr<External>> takers;
  for (const ListenAddress& address : self->addresses_) {
    takers.push_back(address.is_unix() ? plain : encrypted);
  }
  self->acceptor_ = *std::move(acceptor);
  self->acceptor_->Start([takers = std::move(takers)](size_t index, int fd) {
    External::NewConnectionParameters connection;
    connection.fd = fd;
    takers[index]->HandleNewConnection(&connection);
  });
  return self;
}

void GrpcServer::Shutdown(absl::Time deadline) {
  acceptor_->Stop();
  server_->Shutdown(absl::ToChronoTime(deadline));
}

void GrpcServer::CancelCalls() {
  grpc_server_cancel_all_calls(server_->c_server());
}

}  // namespace kvcompress
