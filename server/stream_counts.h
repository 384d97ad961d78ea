// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// How many streams gRPC holds for each of its peers.

#ifndef KVCOMPRESS_SERVER_STREAM_COUNTS_H_
#define KVCOMPRESS_SERVER_STREAM_COUNTS_H_

#include <cstdint>
#include <map>
#include <string>

#include "address.h"

namespace kvcompress {

// By PeerKey.
using StreamCounts = std::map<std::string, uint64_t>;

// The other end of a connection: address and port. IPv4 is the same as within
// IPv6, and all Unix sockets are one peer, as gRPC does not tell them apart.
std::string PeerKey(const SocketAddress& peer);

// The streams of every connection to a server of this process that gRPC still
// holds something of, also of those that were reset. Takes some 20 microseconds
// for each connection. Thread safe.
StreamCounts CountStreams();

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_STREAM_COUNTS_H_
