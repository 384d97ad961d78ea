// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// kvcompress.v1.CompressionService over the core library, by gRPC's callback
// API. kv-compressd and the embedded default serve this same object.

#ifndef KVCOMPRESS_SERVER_SERVICE_H_
#define KVCOMPRESS_SERVER_SERVICE_H_

#include <grpcpp/impl/service_type.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "access.h"
#include "descriptors.h"
#include "kvcompress/safetensors.h"
#include "observer.h"
#include "profile_set.h"
#include "shared_directory.h"
#include "watchdog.h"
#include "worker_pool.h"

namespace kvcompress {

struct ServiceOptions {
  // Largest request message, in bytes. The server that registers the service
  // must be built with the same limit.
  uint64_t max_message_bytes = 8 << 20;
  // Longest header of a file, in bytes; at most kMaxSafetensorsHeader.
  uint64_t max_header_bytes = kMaxSafetensorsHeader;
  // Largest tensor taken by a codec that holds a whole tensor, in bytes.
  uint64_t max_tensor_bytes = uint64_t{1} << 30;
  // Memory for all streams together, in bytes; 0 for no bound.
  uint64_t memory_budget_bytes = 0;
  // The most of it that one client may hold, 1 to 100 percent.
  int client_budget_percent = 100;
  // How many threads work on a call at a time, at most; 0 for as many as there
  // are processors.
  unsigned call_threads = 0;
  // Nice increment of threads that help a call; see WorkerPool.
  int helpers_nicer = WorkerPool::kNicer;
  // The directory of shared-directory transfers; null for none.
  std::shared_ptr<const SharedDirectory> shared_directory;
  // What klt may compress with, and what artefacts may need; null for none.
  std::shared_ptr<const ProfileSource> profiles;
  // Who may call what; empty: everybody everything.
  AccessRules access;
  // How long a call may wait for its client, and how long it may last.
  Watchdog::Limits time;
  // Of the server that registers the service, to be announced; zeros for none.
  ConnectionLimits connections;

  // The profiles that there are now; never null.
  std::shared_ptr<const ProfileSet> CurrentProfiles() const {
    return profiles == nullptr ? std::make_shared<const ProfileSet>()
                               : profiles->current();
  }
};

// Thread safe. `observer` may be null and must outlive the service. Throws
// std::system_error when the system gives no threads.
std::unique_ptr<grpc::Service> NewCompressionService(
    const ServiceOptions& options, CallObserver* observer);

// Runs a built-in cache through every codec: encode, decode, compare, and see
// that a flipped bit is found. INTERNAL, naming the codec, when one fails.
// Takes milliseconds; a server runs it before it says SERVING.
absl::Status RunSelfTest();

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_SERVICE_H_
