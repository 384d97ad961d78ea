// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The HTTP side of a server, for Prometheus and for probes that cannot speak
// gRPC. GET and HEAD:
//   /metrics  200, Prometheus's text format, version 0.0.4
//   /healthz  200 "SERVING" or 503 "NOT_SERVING"
//   /statusz  200, a page for people
// and 404 for anything else. Plaintext.

#ifndef KVCOMPRESS_SERVER_TELEMETRY_HTTP_H_
#define KVCOMPRESS_SERVER_TELEMETRY_HTTP_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "address.h"

namespace kvcompress {

class HttpEndpoint {
 public:
  // What is served. Called by several threads at once, until destruction.
  struct Content {
    std::function<std::string()> metrics;
    std::function<bool()> serving;
    std::function<std::string()> status;
  };

  // Listens on `address`, a host and a port. UNAVAILABLE, with the reason, when
  // it cannot be bound.
  static absl::StatusOr<std::unique_ptr<HttpEndpoint>> Start(
      const ListenAddress& address, Content content);

  // Waits for requests being answered.
  virtual ~HttpEndpoint() = default;

  // As given, with the port that was bound.
  virtual const ListenAddress& address() const = 0;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_TELEMETRY_HTTP_H_
