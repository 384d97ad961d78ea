// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The embedded default: the same service as kv-compressd, inside the caller's
// process and reached over a private pair of sockets. Nothing listens.
//
// A socket pair rather than gRPC's in-process transport, in which a write that
// comes after the server's status blocks until the status is asked for: over
// the pair, calls behave as they do over the network.
//
// Thread safe. The channel must not be used after the server is destroyed.

#ifndef KVCOMPRESS_SERVER_EMBEDDED_H_
#define KVCOMPRESS_SERVER_EMBEDDED_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kvcompress/profile.h"

namespace grpc {
class Channel;
}

namespace kvcompress {

class EmbeddedServer {
 public:
  // With a profile, which requests may name by its digest. `threads` is the
  // most that work on a call at a time; 0 for one on each processor. INTERNAL
  // when the server cannot be started.
  static absl::StatusOr<std::unique_ptr<EmbeddedServer>> Start(
      std::shared_ptr<const Profile> profile = nullptr, unsigned threads = 0);

  virtual ~EmbeddedServer() = default;

  virtual std::shared_ptr<grpc::Channel> channel() = 0;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_EMBEDDED_H_
