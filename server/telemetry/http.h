// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The HTTP side of a server, for Prometheus and for probes that cannot speak
// gRPC. GET and HEAD:
//   /         200, a page with links to the others
//   /metrics  200, Prometheus's text format, version 0.0.4
//   /healthz  200 "SERVING" or 503 "NOT_SERVING"
//   /livez    200 "ALIVE" or 503 "NOT_ALIVE"
//   /statusz  200, a page for people
// and 404 for anything else. Plaintext, HTTP/1.x, one request for each
// connection.
//
// Clients that are slow, or that say nothing, hold no thread: one thread polls
// all connections, and another renders the pages. Connections are bounded in
// number, all of them and those of one client, and in time; when there are too
// many, newer ones displace older ones (http_table.h). /healthz and /livez are
// answered before anything else that is ready, without a look at other pages.

#ifndef KVCOMPRESS_SERVER_TELEMETRY_HTTP_H_
#define KVCOMPRESS_SERVER_TELEMETRY_HTTP_H_

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "address.h"
#include "telemetry/http_table.h"

namespace kvcompress {

struct HttpOptions {
  HttpTable::Limits limits;
  // For the whole head of a request, however it trickles in; and for taking the
  // whole answer, in the same way.
  HttpConnection::Deadlines deadlines = {std::chrono::seconds(2),
                                         std::chrono::seconds(10)};
  HttpObserver observer;
};

// Limits of so many connections, at least 8 and at most as many as the default
// has; of one client, half of them.
HttpTable::Limits HttpLimits(size_t connections);

class HttpEndpoint {
 public:
  // What is served, until destruction. `metrics` and `status` are called by one
  // thread, `serving` and `alive` by another; where one throws, the answer is
  // 503.
  struct Content {
    std::function<std::string()> metrics;
    std::function<bool()> serving;
    std::function<bool()> alive;
    std::function<std::string()> status;
    std::string index;  // the page at `/`, HTML
  };

  // Listens on `address`, a host and a port. UNAVAILABLE, with the reason, when
  // it cannot be bound.
  static absl::StatusOr<std::unique_ptr<HttpEndpoint>> Start(
      const ListenAddress& address, Content content, HttpOptions options = {});

  // Answers the requests that have come, for at most a second, and waits for a
  // page that is being rendered.
  virtual ~HttpEndpoint() = default;

  // As given, with the port that was bound.
  virtual const ListenAddress& address() const = 0;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_TELEMETRY_HTTP_H_
