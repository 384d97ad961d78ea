// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "lifecycle.h"

#include <grpc/grpc.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "certificates.h"
#include "flow_control.h"
#include "health.h"
#include "kvcompress/kernels.h"
#include "kvcompress/version.h"
#include "memory_limit.h"
#include "service.h"
#include "telemetry/call_log.h"
#include "telemetry/http.h"
#include "telemetry/metrics.h"
#include "telemetry/observers.h"
#include "telemetry/status_page.h"
#include "tls.h"

namespace kvcompress {
namespace {

constexpr char kServiceName[] = "kvcompress.v1.CompressionService";

// A connection is given up when a ping has no answer for 20 seconds; pings go
// out after a minute of silence. Clients may ping as often as every 20 seconds.
constexpr int kKeepaliveTimeMs = 60'000;
constexpr int kKeepaliveTimeoutMs = 20'000;
constexpr int kMinPingIntervalMs = 20'000;

void SetChannelArguments(const DaemonOptions& options,
                         grpc::ServerBuilder* builder) {
  builder->SetMaxReceiveMessageSize(
      static_cast<int>(options.max_message_bytes));
  builder->SetMaxSendMessageSize(-1);
  SetFlowControl(builder);
  // A port in use is an error, not something to share.
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
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
                                static_cast<int>(absl::ToInt64Milliseconds(
                                    options.max_connection_age)));
  }
}

// Sockets made while this lives get the permissions `mode`, whatever the umask,
// from their first moment on.
class SocketMode {
 public:
  explicit SocketMode(std::optional<uint32_t> mode)
      : before_(mode ? std::optional(umask(0777 & ~*mode)) : std::nullopt) {}
  ~SocketMode() {
    if (before_) umask(*before_);
  }
  SocketMode(const SocketMode&) = delete;
  SocketMode& operator=(const SocketMode&) = delete;

 private:
  const std::optional<mode_t> before_;
};

// Binds every address and starts. Fills in the ports that were chosen. `tls` is
// null for plain text.
absl::StatusOr<std::unique_ptr<grpc::Server>> Listen(
    const DaemonOptions& options, const std::vector<grpc::Service*>& services,
    const std::shared_ptr<grpc::ServerCredentials>& tls, uint64_t budget,
    std::vector<ListenAddress>* addresses) {
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::EnableDefaultHealthCheckService(false);
  grpc::ServerBuilder builder;
  SetChannelArguments(options, &builder);
  // A second fence, around what gRPC buffers: it ends streams without an error
  // that says why, so the first one, which does, has to be nearer.
  builder.SetResourceQuota(grpc::ResourceQuota("kvcompress")
                               .Resize(BufferQuota(budget, MemoryLimit())));
  for (grpc::Service* service : services) builder.RegisterService(service);
  std::vector<int> ports(addresses->size(), 0);
  for (size_t i = 0; i < addresses->size(); ++i) {
    const ListenAddress& address = (*addresses)[i];
    if (address.is_unix()) {
      const absl::Status free = RemoveStaleSocket(address.path);
      if (!free.ok()) return free;
    }
    const bool encrypted = tls != nullptr && !address.is_unix();
    builder.AddListeningPort(
        address.ToString(), encrypted ? tls : grpc::InsecureServerCredentials(),
        &ports[i]);
  }
  const SocketMode mode(options.unix_socket_mode);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  for (size_t i = 0; i < addresses->size(); ++i) {
    ListenAddress& address = (*addresses)[i];
    if (server == nullptr && ports[i] <= 0) {
      return absl::UnavailableError(absl::StrCat("cannot listen on ",
                                                 address.ToString(), ": ",
                                                 ExplainBindFailure(address)));
    }
    if (!address.is_unix()) address.port = static_cast<uint16_t>(ports[i]);
  }
  if (server == nullptr) return absl::InternalError("gRPC did not start");
  return server;
}

std::string Joined(const std::vector<ListenAddress>& addresses) {
  return absl::StrJoin(addresses, ", ",
                       [](std::string* out, const ListenAddress& address) {
                         absl::StrAppend(out, address.ToString());
                       });
}

const char* ConnectionsOf(const DaemonOptions& options) {
  if (!options.tls.enabled()) return "no TLS";
  if (options.tls.client_ca.empty()) return "TLS";
  return options.access.empty() ? "mutual TLS" : "mutual TLS, with --allow";
}

void LogStart(const DaemonOptions& options,
              const std::vector<ListenAddress>& addresses,
              const HttpEndpoint* http, uint64_t budget) {
  spdlog::info(
      "kv-compressd {} (API {}, artefact format {}) listening on {}; metrics "
      "on {}; {}; max_message_bytes {}, max_header_bytes {}, "
      "memory_budget_bytes {}",
      kVersion, kApiVersion, kFormatVersion, Joined(addresses),
      http == nullptr ? "nothing"
                      : absl::StrCat("http://", http->address().ToString()),
      ConnectionsOf(options), options.max_message_bytes,
      options.max_header_bytes, budget);
  for (const ListenAddress& address : addresses) {
    if (!address.is_local() && !options.tls.enabled()) {
      spdlog::warn(
          "{} can be reached from other machines, and the connection is "
          "neither encrypted nor authenticated",
          address.ToString());
    }
  }
}

// Ends calls and connections: those that run have `grace`, or until a signal.
void ShutDown(absl::Duration grace, grpc::Server* server, HealthService* health,
              StopSignals* signals) {
  health->Shutdown();
  const absl::Time deadline = absl::Now() + grace;
  std::thread shutdown([&] {
    server->Shutdown(absl::ToChronoTime(deadline));
    signals->Wake();
  });
  if (signals->Wait(absl::InfiniteFuture()) != 0) {
    spdlog::warn("another signal: cancelling the calls that still run");
    grpc_server_cancel_all_calls(server->c_server());
  }
  shutdown.join();
  if (grace > absl::ZeroDuration() && absl::Now() >= deadline) {
    spdlog::warn("calls that still ran after the grace were cancelled");
  }
}

void ServeUntilStopped(const DaemonOptions& options, grpc::Server* server,
                       HealthService* health, StopSignals* signals) {
  health->SetServing(true);
  spdlog::info("self-test passed: SERVING");
  const int signal = signals->Wait(absl::InfiniteFuture());
  health->SetServing(false);
  const absl::Duration delay =
      signal == SIGTERM ? options.drain_delay : absl::ZeroDuration();
  spdlog::info("{}: NOT_SERVING; draining for {}, then a grace of {}",
               signal == SIGTERM ? "SIGTERM" : "SIGINT",
               absl::FormatDuration(delay),
               absl::FormatDuration(options.shutdown_grace));
  const bool hurry =
      delay > absl::ZeroDuration() && signals->Wait(absl::Now() + delay) != 0;
  ShutDown(hurry ? absl::ZeroDuration() : options.shutdown_grace, server,
           health, signals);
  spdlog::info("stopped");
}

}  // namespace

absl::Status CheckConfig(const DaemonOptions& options) {
  if (!options.shared_directory.empty()) {
    absl::Status status =
        SharedDirectory::Open(options.shared_directory).status();
    if (!status.ok()) return status;
  }
  if (!options.tls.enabled()) return absl::OkStatus();
  return ReadCertificates(options.tls, absl::Now()).status();
}

absl::Status RunServer(const DaemonOptions& options, StopSignals* signals) {
  std::shared_ptr<const SharedDirectory> shared;
  if (!options.shared_directory.empty()) {
    absl::StatusOr<std::shared_ptr<const SharedDirectory>> opened =
        SharedDirectory::Open(options.shared_directory);
    if (!opened.ok()) return opened.status();
    shared = *std::move(opened);
  }
  // In this order: what is declared later uses what comes before it.
  ServerMetrics metrics;
  StatusPage page;
  CallLog log;
  Observers observer({&metrics, &page, &log});
  HealthService health({kServiceName});
  const uint64_t budget =
      options.memory_budget_bytes.value_or(DefaultMemoryBudget(MemoryLimit()));
  metrics.SetMemoryBudget(budget);
  page.SetFact("memory budget, bytes", absl::StrCat(budget));
  page.SetFact("kernels", ActiveKernels());
  if (shared != nullptr) page.SetFact("shared directory", shared->path());
  const std::unique_ptr<grpc::Service> service = NewCompressionService(
      {.max_message_bytes = options.max_message_bytes,
       .max_header_bytes = options.max_header_bytes,
       .max_tensor_bytes = options.max_tensor_bytes,
       .memory_budget_bytes = budget,
       .client_budget_percent = options.client_budget_percent,
       .shared_directory = shared,
       .access = options.access,
       .time = {.stall = options.stall, .call = options.max_call}},
      &observer);

  std::unique_ptr<CertificateWatcher> certificates;
  std::shared_ptr<grpc::ServerCredentials> tls;
  if (options.tls.enabled()) {
    absl::StatusOr<std::unique_ptr<CertificateWatcher>> started =
        CertificateWatcher::Start(options.tls, options.tls_reload_interval,
                                  {[&](const Certificates& current) {
                                     metrics.SetTlsExpiry(current.expiry);
                                     page.SetFact(
                                         "certificate expires",
                                         absl::FormatTime(current.expiry));
                                   },
                                   [&] { metrics.TlsReloadFailed(); }});
    if (!started.ok()) return started.status();
    certificates = *std::move(started);
    tls = ReloadingCredentials(certificates.get());
  }

  std::unique_ptr<HttpEndpoint> http;
  if (options.metrics_listen.has_value()) {
    absl::StatusOr<std::unique_ptr<HttpEndpoint>> started = HttpEndpoint::Start(
        *options.metrics_listen,
        {[&] { return metrics.Render(); }, [&] { return health.serving(); },
         [&] { return page.Render(health.serving(), absl::Now()); }});
    if (!started.ok()) return started.status();
    http = *std::move(started);
  }

  std::vector<ListenAddress> addresses = options.listen;
  absl::StatusOr<std::unique_ptr<grpc::Server>> server =
      Listen(options, {service.get(), &health}, tls, budget, &addresses);
  if (!server.ok()) return server.status();
  page.SetFact("listening on", Joined(addresses));
  page.SetFact("connections", ConnectionsOf(options));
  LogStart(options, addresses, http.get(), budget);

  absl::Status tested = RunSelfTest();
  if (!tested.ok()) {
    ShutDown(absl::ZeroDuration(), server->get(), &health, signals);
    return tested;
  }
  ServeUntilStopped(options, server->get(), &health, signals);
  return absl::OkStatus();
}

}  // namespace kvcompress
