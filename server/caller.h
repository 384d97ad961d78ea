// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Who a call comes from, as far as the connection proves it, and the names by
// which logs know the call.

#ifndef KVCOMPRESS_SERVER_CALLER_H_
#define KVCOMPRESS_SERVER_CALLER_H_

#include <grpcpp/grpcpp.h>

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "observer.h"

namespace kvcompress {

struct Caller {
  // The subject alternative names of the certificate that the client proved to
  // have; "unix" for a Unix socket. None: anybody.
  std::vector<std::string> identities;
  // Whom fairness among clients counts the call to: the identities, or where
  // there are none the host of the connection.
  std::string client;
  // Whether it is a Unix socket, or within this process.
  bool is_local = false;
  CallNames names;
};

// Also has the names sent back with the end of the call, as trailers
// `x-request-id` and `traceparent`. REQUIRES: once, before the call is ended.
Caller IdentifyCaller(grpc::CallbackServerContext* context);

// "ipv4:10.0.0.1" of "ipv4:10.0.0.1:4711": a peer, as gRPC writes it, without
// the port.
std::string HostOfPeer(absl::string_view peer);

// Whether these are what the comments above say. Version 00 of traceparent has
// exactly four fields; later ones may have more, up to 256 bytes in all.
bool IsRequestId(absl::string_view text);
bool IsTraceparent(absl::string_view text);

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_CALLER_H_
