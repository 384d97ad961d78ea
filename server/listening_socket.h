// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Listening sockets, and whom their connections come from.

#ifndef KVCOMPRESS_SERVER_LISTENING_SOCKET_H_
#define KVCOMPRESS_SERVER_LISTENING_SOCKET_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "address.h"
#include "file_descriptor.h"

namespace kvcompress {

struct ListeningOptions {
  // Connections that wait to be accepted. The kernel takes fewer where
  // net.core.somaxconn says so.
  int backlog = 0;
  // After how many milliseconds without an acknowledgement a TCP connection is
  // given up. From 5.11 on Linux counts the time for which the peer's window
  // stays closed, too. Connections inherit this and the two sizes.
  int user_timeout_ms = 0;
  // Of the kernel's buffers for each connection, which takes twice as much; 0
  // for its own choice.
  int receive_buffer_bytes = 0;
  int send_buffer_bytes = 0;
  // Whether `0.0.0.0` stands for every address of IPv6, too.
  bool ipv4_wildcard_takes_ipv6 = false;
};

// Listens on every address that `address` stands for and that this machine has,
// with one port, and puts the port into `address`. `::` takes IPv4, too. The
// sockets, at least one, do not block. UNAVAILABLE, with the system's reason
// alone, when an address is taken or none can be had.
absl::StatusOr<std::vector<FileDescriptor>> ListenOn(
    const ListeningOptions& options, ListenAddress* address);

// Whom limits count a connection from `peer` to: its IPv4 address, or the first
// 64 bits of its IPv6 address, since one host commonly has all the others. Unix
// sockets are one host.
std::string HostKey(const SocketAddress& peer);

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_LISTENING_SOCKET_H_
