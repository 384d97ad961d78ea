// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "lifecycle.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "certificates.h"
#include "descriptors.h"
#include "dial.h"
#include "grpc_server.h"
#include "health.h"
#include "kvcompress/kernels.h"
#include "kvcompress/version.h"
#include "memory_limit.h"
#include "profile_directory.h"
#include "reachability.h"
#include "reflection.h"
#include "service.h"
#include "telemetry/call_log.h"
#include "telemetry/http.h"
#include "telemetry/index_page.h"
#include "telemetry/metrics.h"
#include "telemetry/observers.h"
#include "telemetry/status_page.h"
#include "thread_reserve.h"
#include "tls.h"
#include "worker_pool.h"

namespace kvcompress {
namespace {

constexpr char kServiceName[] = "kvcompress.v1.CompressionService";
constexpr char kHealthName[] = "grpc.health.v1.Health";

// Of one dial of an own address.
constexpr absl::Duration kDialTimeout = absl::Seconds(3);

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
              const HttpEndpoint* http, uint64_t budget,
              const ConnectionLimits& limits) {
  spdlog::info(
      "kv-compressd {} (API {}, artefact format {}) listening on {}; metrics "
      "on {}; {}; max_message_bytes {}, max_header_bytes {}, "
      "memory_budget_bytes {}, max_connections {}, "
      "max_connections_per_host {}",
      kVersion, kApiVersion, kFormatVersion, Joined(addresses),
      http == nullptr ? "nothing"
                      : absl::StrCat("http://", http->address().ToString()),
      ConnectionsOf(options), options.max_message_bytes,
      options.max_header_bytes, budget, limits.total, limits.per_host);
  for (const ListenAddress& address : addresses) {
    if (!address.is_local() && !options.tls.enabled()) {
      spdlog::warn(
          "{} can be reached from other machines, and the connection is "
          "neither encrypted nor authenticated",
          address.ToString());
    }
  }
}

// Bytes for all streams. Profiles are not among them.
uint64_t BudgetOf(const DaemonOptions& options) {
  if (options.memory_budget_bytes) return *options.memory_budget_bytes;
  const uint64_t limit = MemoryLimit();
  const uint64_t profiles =
      options.profile_directory.empty() ? 0 : options.max_profile_bytes;
  return DefaultMemoryBudget(limit - std::min(limit, profiles));
}

ProfileDirectoryOptions ProfilesOf(const DaemonOptions& options) {
  return {.path = options.profile_directory,
          .max_bytes = options.max_profile_bytes,
          .interval = options.profile_reload_interval};
}

// The profiles of the directory, if there is one; null for none.
absl::StatusOr<std::shared_ptr<const ProfileSource>> StartProfiles(
    const DaemonOptions& options, ServerMetrics* metrics, StatusPage* page) {
  if (options.profile_directory.empty()) return nullptr;
  return ProfileDirectory::Start(
      ProfilesOf(options),
      {.changed =
           [metrics, page](const ProfileSet& profiles) {
             metrics->profiles().Set(profiles);
             page->SetFact("profiles", absl::StrJoin(profiles.loaded(), ", ",
                                                     [](std::string* out,
                                                        const auto& each) {
                                                       out->append(each.name);
                                                     }));
           },
       .refused = [metrics] { metrics->profiles().Refused(); }});
}

// The next signal; 0 once `deadline` is past. Wakes are no signals.
int WaitForSignal(absl::Time deadline, StopSignals* signals) {
  int signal = 0;
  while (signal == 0 && absl::Now() < deadline) {
    signal = signals->Wait(deadline);
  }
  return signal;
}

// Ends calls and connections: those that run have `grace`, or until a signal.
void ShutDown(absl::Duration grace, GrpcServer* server, HealthService* health,
              StopSignals* signals) {
  health->Shutdown();
  const absl::Time deadline = absl::Now() + grace;
  std::atomic<bool> over = false;
  std::thread shutdown;
  try {
    shutdown = std::thread([&] {
      server->Shutdown(deadline);
      over = true;
      signals->Wake();
    });
  } catch (const std::system_error&) {
    spdlog::warn(
        "no thread is left to wait for calls and for signals: "
        "waiting for calls alone");
    server->Shutdown(deadline);
    return;
  }
  int signal = 0;
  // A wake may be left over from an address that was lost.
  while (!over && signal == 0) signal = signals->Wait(absl::InfiniteFuture());
  if (signal != 0) {
    spdlog::warn("another signal: cancelling the calls that still run");
    server->CancelCalls();
  }
  shutdown.join();
  if (grace > absl::ZeroDuration() && absl::Now() >= deadline) {
    spdlog::warn("calls that still ran after the grace were cancelled");
  }
}

// Serves until a signal, or until nobody can reach the server any more.
absl::Status ServeUntilStopped(const DaemonOptions& options,
                               Reachability* reachability, GrpcServer* server,
                               HealthService* health, StopSignals* signals) {
  health->SetServing(true);
  spdlog::info("self-test passed: SERVING");
  const int signal = signals->Wait(absl::InfiniteFuture());
  health->SetServing(false);
  if (signal == 0 && reachability->lost()) {
    reachability->Stop();
    ShutDown(options.shutdown_grace, server, health, signals);
    return absl::UnavailableError(
        absl::StrCat("nobody could reach this server for ",
                     absl::FormatDuration(options.unreachable_exit),
                     ": ended, to be started again"));
  }
  const absl::Duration delay =
      signal == SIGTERM ? options.drain_delay : absl::ZeroDuration();
  spdlog::info("{}: NOT_SERVING; draining for {}, then a grace of {}",
               signal == SIGTERM ? "SIGTERM" : "SIGINT",
               absl::FormatDuration(delay),
               absl::FormatDuration(options.shutdown_grace));
  const bool hurry = WaitForSignal(absl::Now() + delay, signals) != 0;
  reachability->Stop();
  ShutDown(hurry ? absl::ZeroDuration() : options.shutdown_grace, server,
           health, signals);
  spdlog::info("stopped");
  return absl::OkStatus();
}

DialSecurity SecurityOf(const DaemonOptions& options,
                        const ListenAddress& address) {
  if (!options.tls.enabled() || address.is_unix()) return DialSecurity::kPlain;
  return options.tls.client_ca.empty() ? DialSecurity::kTls
                                       : DialSecurity::kMutualTls;
}

// What follows from whether the server can be reached. `signals` is woken when
// it is lost.
Reachability::Events ReachabilityEvents(const DaemonOptions& options,
                                        const GrpcServer& server,
                                        HealthService* health,
                                        ServerMetrics* metrics,
                                        StopSignals* signals) {
  return {.dial =
              [&options, &server](const ListenAddress& address) {
                absl::Status status =
                    Dial(address, SecurityOf(options, address), kDialTimeout);
                if (status.ok() || !server.is_full()) return status;
                return absl::ResourceExhaustedError(
                    "as many connections are open as may be");
              },
          .changed =
              [health, metrics](const absl::Status& status) {
                if (status.ok()) {
                  spdlog::info("new connections are served again");
                } else {
                  spdlog::error("new connections are not served: {}",
                                std::string(status.message()));
                }
                health->SetReachable(status.ok());
                metrics->connections().SetReachable(status.ok());
              },
          .lost = [signals] { signals->Wake(); }};
}

}  // namespace

absl::Status CheckConfig(const DaemonOptions& options) {
  absl::Status limits =
      PlanConnections(RaiseDescriptorLimit(), options.max_connections,
                      options.max_connections_per_host)
          .status();
  if (!limits.ok()) return limits;
  if (!options.shared_directory.empty()) {
    absl::Status status =
        SharedDirectory::Open(options.shared_directory).status();
    if (!status.ok()) return status;
  }
  if (!options.profile_directory.empty()) {
    absl::Status status = ProfileDirectory::Check(ProfilesOf(options));
    if (!status.ok()) return status;
  }
  if (!options.tls.enabled()) return absl::OkStatus();
  return ReadCertificates(options.tls, absl::Now()).status();
}

namespace {

// gRPC looks at processors and not at quotas.
unsigned ProcessorsOfGrpc() {
  return std::max(std::thread::hardware_concurrency(), 1U);
}

// RunServer, but that it throws std::system_error where a thread of ours cannot
// be started.
absl::Status Run(const DaemonOptions& options, StopSignals* signals) {
  // Until there are workers, which take what there is.
  absl::StatusOr<std::unique_ptr<ThreadReserve>> reserve =
      ThreadReserve::Take(ThreadsBesideWorkers(ProcessorsOfGrpc()));
  if (!reserve.ok()) return reserve.status();
  std::shared_ptr<const SharedDirectory> shared;
  if (!options.shared_directory.empty()) {
    absl::StatusOr<std::shared_ptr<const SharedDirectory>> opened =
        SharedDirectory::Open(options.shared_directory);
    if (!opened.ok()) return opened.status();
    shared = *std::move(opened);
    shared->RemoveLeftovers();
  }
  const absl::StatusOr<ConnectionLimits> limits =
      PlanConnections(RaiseDescriptorLimit(), options.max_connections,
                      options.max_connections_per_host);
  if (!limits.ok()) return limits.status();
  // In this order: what is declared later uses what comes before it.
  ServerMetrics metrics;
  StatusPage page;
  CallLog log;
  Observers observer({&metrics, &page, &log});
  HealthService health({kServiceName});
  const std::unique_ptr<grpc::Service> reflection =
      NewReflectionService({kServiceName, kHealthName},
                           {.stall = options.stall, .call = options.max_call});
  const uint64_t budget = BudgetOf(options);
  metrics.SetMemoryBudget(budget);
  metrics.connections().SetLimit(limits->total);
  page.SetMemoryBudget(budget);
  page.SetFact("kernels", ActiveKernels());
  if (shared != nullptr) page.SetFact("shared directory", shared->path());
  const absl::StatusOr<std::shared_ptr<const ProfileSource>> profiles =
      StartProfiles(options, &metrics, &page);
  if (!profiles.ok()) return profiles.status();
  const std::unique_ptr<grpc::Service> service = NewCompressionService(
      {.max_message_bytes = options.max_message_bytes,
       .max_header_bytes = options.max_header_bytes,
       .max_tensor_bytes = options.max_tensor_bytes,
       .memory_budget_bytes = budget,
       .client_budget_percent = options.client_budget_percent,
       .call_threads = static_cast<unsigned>(options.call_threads.value_or(0)),
       .shared_directory = shared,
       .profiles = *profiles,
       .access = options.access,
       .time = {.stall = options.stall, .call = options.max_call},
       .connections = *limits},
      &observer);
  reserve->reset();
  const absl::Status grown = StartThreadsOfGrpc(ProcessorsOfGrpc());
  if (!grown.ok()) return grown;

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

  // Made once there is a server; stopped before that ends.
  std::optional<Reachability> reachability;
  std::atomic<const Reachability*> watching = nullptr;
  std::unique_ptr<HttpEndpoint> http;
  if (options.metrics_listen.has_value()) {
    absl::StatusOr<std::unique_ptr<HttpEndpoint>> started = HttpEndpoint::Start(
        *options.metrics_listen,
        {[&] { return metrics.Render(); }, [&] { return health.serving(); },
         [&] {
           const Reachability* const watch = watching;
           return watch == nullptr || watch->alive();
         },
         [&] { return page.Render(health.serving(), absl::Now()); },
         IndexPage()},
        {.limits = HttpLimits(limits->http),
         .observer = metrics.http_observer()});
    if (!started.ok()) return started.status();
    http = *std::move(started);
  }

  const absl::StatusOr<std::unique_ptr<GrpcServer>> server = GrpcServer::Start(
      options, {service.get(), &health, reflection.get()}, tls, budget, *limits,
      {.accepted = [&] { metrics.connections().Accepted(); },
       .refused = [&](Refusal why) { metrics.connections().Refused(why); },
       .open = [&](int open) { metrics.connections().SetOpen(open); },
       .unread = [&] { metrics.connections().Unread(); },
       .shed = [&] { metrics.connections().Shed(); }});
  if (!server.ok()) return server.status();
  const std::vector<ListenAddress>& addresses = (*server)->addresses();
  page.SetFact("listening on", Joined(addresses));
  page.SetFact("connections", ConnectionsOf(options));
  page.SetFact("connections at most", absl::StrCat(limits->total));
  LogStart(options, addresses, http.get(), budget, *limits);

  absl::Status tested = RunSelfTest();
  if (!tested.ok()) {
    ShutDown(absl::ZeroDuration(), server->get(), &health, signals);
    return tested;
  }
  reachability.emplace(
      addresses, Reachability::Options{.lost_after = options.unreachable_exit},
      ReachabilityEvents(options, **server, &health, &metrics, signals));
  watching = &*reachability;
  return ServeUntilStopped(options, &*reachability, server->get(), &health,
                           signals);
}

}  // namespace

absl::Status RunServer(const DaemonOptions& options, StopSignals* signals) {
  try {
    return Run(options, signals);
  } catch (const std::system_error& error) {
    return TooFewThreads(
        absl::StrCat("cannot start the server's threads: ", error.what()));
  }
}

}  // namespace kvcompress
