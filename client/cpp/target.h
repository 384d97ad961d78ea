// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The address of a server as people write it, and as gRPC takes it.

#ifndef KVCOMPRESS_CLIENT_CPP_TARGET_H_
#define KVCOMPRESS_CLIENT_CPP_TARGET_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace kvcompress {

struct Target {
  // For grpc::CreateChannel. The path of a Unix socket is encoded: gRPC takes
  // it for that of a URI.
  std::string name;
  // Without brackets, in lower case; none for sockets of this machine, and an
  // empty one where only gRPC knows.
  std::vector<std::string> hosts = {};
};

// INVALID_ARGUMENT, with the reason INVALID_ADDRESS, for a port that is not
// from 1 to 65,535, and for the path of a Unix socket that is empty, has more
// than 107 bytes or a comma, at which gRPC cuts it. Other names are gRPC's.
absl::StatusOr<Target> ParseTarget(const std::string& text);

// Whether connections to `target` never go through an HTTP proxy: Unix sockets,
// loopback addresses, `localhost`, and hosts that `no_proxy` names. That is a
// list with commas: a host, a domain with or without a dot in front, for it and
// all below it; an IP address; a CIDR block; or `*`.
bool IsDirect(const Target& target, absl::string_view no_proxy);

}  // namespace kvcompress

#endif  // KVCOMPRESS_CLIENT_CPP_TARGET_H_
