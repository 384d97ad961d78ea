// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// grpc.health.v1.Health, by gRPC's callback API. Ours rather than gRPC's own so
// that server reflection describes it and grpcurl can call it.
//
// The services it knows share one status: a server is fit for all or for none.
// Thread safe. REQUIRES: outlives the grpc::Server it is registered with.

#ifndef KVCOMPRESS_SERVER_HEALTH_H_
#define KVCOMPRESS_SERVER_HEALTH_H_

#include <mutex>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "grpc/health/v1/health.grpc.pb.h"

namespace kvcompress {

class HealthService final : public grpc::health::v1::Health::CallbackService {
 public:
  // Knows `services`, full names such as "kvcompress.v1.CompressionService",
  // and "", the server as a whole. All begin as NOT_SERVING.
  explicit HealthService(const std::vector<std::string>& services);
  ~HealthService() override;

  // Tells every Watch when this is a change. No effect after Shutdown.
  void SetServing(bool serving);
  bool serving() const;

  // NOT_SERVING for good. Every Watch is told and then ends with UNAVAILABLE,
  // those that arrive later too, so that none holds up a server's shutdown.
  void Shutdown();

  // The status of a known service, else NOT_FOUND.
  grpc::ServerUnaryReactor* Check(
      grpc::CallbackServerContext* context,
      const grpc::health::v1::HealthCheckRequest* request,
      grpc::health::v1::HealthCheckResponse* response) override;

  // The status now and on every change; a reader that is slow sees the latest.
  // SERVICE_UNKNOWN, and nothing more, for a service that is not known.
  grpc::ServerWriteReactor<grpc::health::v1::HealthCheckResponse>* Watch(
      grpc::CallbackServerContext* context,
      const grpc::health::v1::HealthCheckRequest* request) override;

 private:
  class Watcher;
  using Status = grpc::health::v1::HealthCheckResponse::ServingStatus;

  // Sets the status and lets every watcher take its next step.
  void Update(Status status, bool shutdown);

  const absl::flat_hash_set<std::string> services_;
  // Guards what follows, and the state of every watcher. Not absl's: thread
  // sanitizers see into this one.
  mutable std::mutex mutex_;
  Status status_ = grpc::health::v1::HealthCheckResponse::NOT_SERVING;
  bool shutdown_ = false;
  absl::flat_hash_set<Watcher*> watchers_;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_HEALTH_H_
