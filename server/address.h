// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Where a server listens: `host:port`, `[ipv6]:port` or `unix:PATH`.

#ifndef KVCOMPRESS_SERVER_ADDRESS_H_
#define KVCOMPRESS_SERVER_ADDRESS_H_

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace kvcompress {

// Either a host and a port, or a path.
struct ListenAddress {
  // A name or a numeric address, IPv6 without brackets.
  std::string host;
  // 0 to 65,535; 0 lets the system choose.
  uint16_t port = 0;
  // Path of a Unix socket, at most 107 bytes; empty for host and port.
  std::string path;

  bool is_unix() const { return !path.empty(); }
  // Whether only this machine can reach it: a path, `localhost`, or a numeric
  // loopback address. Other names may resolve to anything.
  bool is_local() const;
  // What ParseListenAddress takes, IPv6 in brackets: gRPC's own notation
  // too.
  std::string ToString() const;

  friend bool operator==(const ListenAddress&, const ListenAddress&) = default;
};

// INVALID_ARGUMENT, saying what is expected. `unix:///PATH` is taken as well.
absl::StatusOr<ListenAddress> ParseListenAddress(absl::string_view text);

// Where this machine reaches what listens on `address`: the loopback address
// for a wildcard.
ListenAddress Reachable(ListenAddress address);

// Makes way for a Unix socket at `path`: removes a socket on which nobody
// answers. OK when there is nothing. FAILED_PRECONDITION when a process answers
// there, or when the file is not a socket.
absl::Status RemoveStaleSocket(const std::string& path);

// An address as the calls of sockets take it.
struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t size = 0;

  int family() const { return storage.ss_family; }
  const sockaddr* get() const {
    return reinterpret_cast<const sockaddr*>(&storage);
  }
};

// Every address that `address` stands for, at least one. NOT_FOUND, with the
// resolver's reason, for a host without any. Waits for the resolver where the
// host is a name.
absl::StatusOr<std::vector<SocketAddress>> Resolve(
    const ListenAddress& address);

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_ADDRESS_H_
