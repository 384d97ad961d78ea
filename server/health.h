// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// grpc.health.v1.Health, by gRPC's callback API. Ours rather than gRPC's own so
// that server reflection describes it and grpcurl can call it.
//
// The services it knows share one status: a server is fit for all or for none.
// Check returns the status of a known service, else NOT_FOUND. Watch sends the
// status now and on every change, of which a reader that is slow sees the
// latest; SERVICE_UNKNOWN, and nothing more, for a service that is not known.
// Requests are read as they are on the wire, up to kMaxSmallRequest bytes.
// Thread safe. REQUIRES: outlives the grpc::Server it is registered with.

#ifndef KVCOMPRESS_SERVER_HEALTH_H_
#define KVCOMPRESS_SERVER_HEALTH_H_

#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

#include "absl/functional/function_ref.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "parsed_size.h"
#include "small_call.h"
#include "watchdog.h"

namespace kvcompress {

class HealthService final : public RawService {
 public:
  // Most streams of Watch at a time; more get RESOURCE_EXHAUSTED.
  static constexpr size_t kMaxWatchers = 1024;

  // Knows `services`, full names such as "kvcompress.v1.CompressionService",
  // and "", the server as a whole. All begin as NOT_SERVING.
  explicit HealthService(const std::vector<std::string>& services);
  ~HealthService() override;

  // The status is SERVING while the server serves and can be reached; it counts
  // as reachable until SetReachable(false). These notify every Watch when the
  // status changes. No effect after Shutdown.
  void SetServing(bool serving);
  void SetReachable(bool reachable);
  bool serving() const;

  // NOT_SERVING for good. Every Watch is notified and then ends with
  // UNAVAILABLE, those that arrive later too, so that none holds up a server's
  // shutdown.
  void Shutdown();

 private:
  class Watcher;
  using Status = grpc::health::v1::HealthCheckResponse::ServingStatus;

  // Makes a change, and lets every watcher take its next step. Takes no memory.
  void Update(absl::FunctionRef<void()> change);
  grpc::Status Check(const grpc::ByteBuffer& request,
                     grpc::ByteBuffer* response);

  const std::set<std::string, std::less<>> services_;
  const ParsedSize request_size_;
  Watchdog watchdog_;  // of calls whose request has not come
  // Guards what follows, and the state of every watcher. Not absl's: thread
  // sanitizers see into this one.
  mutable std::mutex mutex_;
  Status status_ = grpc::health::v1::HealthCheckResponse::NOT_SERVING;
  bool serving_ = false;
  bool reachable_ = true;
  bool shutdown_ = false;
  std::unordered_set<Watcher*> watchers_;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_HEALTH_H_
