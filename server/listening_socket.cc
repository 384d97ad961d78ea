// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "listening_socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "absl/status/status.h"

namespace kvcompress {
namespace {

void Set(const FileDescriptor& socket, int level, int option, int value) {
  setsockopt(socket.get(), level, option, &value, sizeof(value));
}

// sin_port and sin6_port are at the same place.
void SetPort(uint16_t port, SocketAddress* address) {
  reinterpret_cast<sockaddr_in*>(&address->storage)->sin_port = htons(port);
}

uint16_t PortOf(const FileDescriptor& socket) {
  SocketAddress bound;
  bound.size = sizeof(bound.storage);
  getsockname(socket.get(), reinterpret_cast<sockaddr*>(&bound.storage),
              &bound.size);
  return ntohs(reinterpret_cast<const sockaddr_in*>(&bound.storage)->sin_port);
}

// NOT_FOUND where this machine does not have the address, or its family.
absl::StatusOr<FileDescriptor> Listen(const SocketAddress& where,
                                      const ListeningOptions& options) {
  const int family = where.family();
  FileDescriptor listener(
      socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (listener.ok() && family != AF_UNIX) {
    Set(listener, SOL_SOCKET, SO_REUSEADDR, 1);
    Set(listener, IPPROTO_TCP, TCP_NODELAY, 1);
    Set(listener, IPPROTO_TCP, TCP_USER_TIMEOUT, options.user_timeout_ms);
  }
  if (listener.ok() && family == AF_INET6) {
    Set(listener, IPPROTO_IPV6, IPV6_V6ONLY, 0);
  }
  if (listener.ok() && options.receive_buffer_bytes > 0) {
    Set(listener, SOL_SOCKET, SO_RCVBUF, options.receive_buffer_bytes);
  }
  if (listener.ok() && options.send_buffer_bytes > 0) {
    Set(listener, SOL_SOCKET, SO_SNDBUF, options.send_buffer_bytes);
  }
  if (!listener.ok() || bind(listener.get(), where.get(), where.size) != 0 ||
      listen(listener.get(), options.backlog) != 0) {
    const bool absent = errno == EAFNOSUPPORT || errno == EADDRNOTAVAIL;
    const std::string reason = std::generic_category().message(errno);
    return absent ? absl::NotFoundError(reason)
                  : absl::UnavailableError(reason);
  }
  return listener;
}

}  // namespace

absl::StatusOr<std::vector<FileDescriptor>> ListenOn(
    const ListeningOptions& options, ListenAddress* address) {
  absl::StatusOr<std::vector<SocketAddress>> found = Resolve(*address);
  if (!found.ok()) return absl::UnavailableError(found.status().message());
  std::vector<FileDescriptor> sockets;
  const auto listen_on = [&](const SocketAddress& where) -> absl::Status {
    absl::StatusOr<FileDescriptor> listener = Listen(where, options);
    if (!listener.ok()) return listener.status();
    if (!address->is_unix()) address->port = PortOf(*listener);
    sockets.push_back(*std::move(listener));
    return absl::OkStatus();
  };
  if (options.ipv4_wildcard_takes_ipv6 && address->host == "0.0.0.0") {
    ListenAddress both = *address;
    both.host = "::";
    absl::StatusOr<std::vector<SocketAddress>> v6 = Resolve(both);
    // Where IPv6 is turned off the address of IPv4 remains.
    if (v6.ok() && listen_on(v6->front()).ok()) return sockets;
  }
  absl::Status last;
  for (SocketAddress& where : *found) {
    // All of them get the port that the system chose for the first.
    if (!address->is_unix()) SetPort(address->port, &where);
    last = listen_on(where);
    // A name may stand for a family that this machine does not have.
    if (!last.ok() && !absl::IsNotFound(last)) break;
  }
  if (sockets.empty() || !(last.ok() || absl::IsNotFound(last))) {
    return absl::UnavailableError(last.message());
  }
  return sockets;
}

std::string HostKey(const SocketAddress& peer) {
  if (peer.family() == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&peer.storage);
    return std::string(reinterpret_cast<const char*>(&v4->sin_addr), 4);
  }
  if (peer.family() != AF_INET6) return "unix:";
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&peer.storage);
  const char* bytes = reinterpret_cast<const char*>(&v6->sin6_addr);
  return IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr) ? std::string(bytes + 12, 4)
                                              : std::string(bytes, 8);
}

}  // namespace kvcompress
