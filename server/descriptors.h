// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// File descriptors: how many this process may have, and what they are for. A
// server that runs out of them can neither accept a connection nor open a file,
// so connections are bounded well before that.

#ifndef KVCOMPRESS_SERVER_DESCRIPTORS_H_
#define KVCOMPRESS_SERVER_DESCRIPTORS_H_

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"

namespace kvcompress {

// Most connections that a server has open at once.
struct ConnectionLimits {
  // Of gRPC, over all addresses.
  int total = 0;
  // Of those, from one host: an IPv4 address, the first 64 bits of an IPv6
  // address, or all Unix sockets together.
  int per_host = 0;
  // Of HTTP, on the metrics address.
  int http = 0;
};

// Connections where neither a flag nor the limit of descriptors says less.
inline constexpr int kDefaultMaxConnections = 1024;
inline constexpr int kMaxHttpConnections = 512;

// Raises the soft limit of descriptors to the hard one. Returns the limit.
uint64_t RaiseDescriptorLimit();

// Divides `descriptors` among connections and the rest: 64 for the libraries,
// the log and the listening sockets, an eighth for the metrics address, and a
// quarter of what then remains for files that calls open. `total` and
// `per_host` are what flags ask for; without them, `total` is
// kDefaultMaxConnections or what there is, and `per_host` half of it.
// INVALID_ARGUMENT, with the number needed, when there are too few for what was
// asked for, or fewer than 128.
absl::StatusOr<ConnectionLimits> PlanConnections(uint64_t descriptors,
                                                 std::optional<int> total,
                                                 std::optional<int> per_host);

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_DESCRIPTORS_H_
