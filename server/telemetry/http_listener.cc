// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "telemetry/http_listener.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace kvcompress {
namespace {

// Of the kernel's memory that each connection can fill: requests are small, and
// an answer that is sent to many is shared where it lies here. Linux takes
// twice as much.
constexpr int kReceiveBufferBytes = 16 << 10;
constexpr int kSendBufferBytes = 32 << 10;
// What was sent and is never acknowledged is given up, also when the connection
// is closed here, as after an answer.
constexpr unsigned kUserTimeoutMs = 10'000;

void SetOption(const FileDescriptor& socket, int level, int name, int value) {
  setsockopt(socket.get(), level, name, &value, sizeof(value));
}

// With the options that its connections inherit.
FileDescriptor Listen(const SocketAddress& address) {
  FileDescriptor listener(
      socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener.ok()) return listener;
  SetOption(listener, SOL_SOCKET, SO_REUSEADDR, 1);
  SetOption(listener, SOL_SOCKET, SO_RCVBUF, kReceiveBufferBytes);
  SetOption(listener, SOL_SOCKET, SO_SNDBUF, kSendBufferBytes);
  SetOption(listener, IPPROTO_TCP, TCP_NODELAY, 1);
  SetOption(listener, IPPROTO_TCP, TCP_USER_TIMEOUT, kUserTimeoutMs);
  if (address.family() == AF_INET6) {
    SetOption(listener, IPPROTO_IPV6, IPV6_V6ONLY, 0);
  }
  if (bind(listener.get(), address.get(), address.size) != 0 ||
      listen(listener.get(), SOMAXCONN) != 0) {
    const int error = errno;
    listener = FileDescriptor();
    errno = error;
  }
  return listener;
}

in_port_t* PortOf(SocketAddress* address) {
  if (address->family() == AF_INET6) {
    return &reinterpret_cast<sockaddr_in6*>(&address->storage)->sin6_port;
  }
  return &reinterpret_cast<sockaddr_in*>(&address->storage)->sin_port;
}

uint16_t BoundPort(const FileDescriptor& socket) {
  SocketAddress bound;
  bound.size = sizeof(bound.storage);
  getsockname(socket.get(), reinterpret_cast<sockaddr*>(&bound.storage),
              &bound.size);
  return ntohs(*PortOf(&bound));
}

bool SomebodyWaits(const FileDescriptor& listener) {
  pollfd polled = {listener.get(), POLLIN, 0};
  return poll(&polled, 1, 0) > 0;
}

HttpPeer PeerOf(const sockaddr_storage& from) {
  HttpPeer peer = {};
  if (from.ss_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&from);
    peer[10] = peer[11] = 0xFF;
    std::memcpy(&peer[12], &v4->sin_addr, 4);
  } else if (from.ss_family == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&from);
    const bool mapped = IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr);
    std::memcpy(peer.data(), &v6->sin6_addr, mapped ? 16 : 8);
  }
  return peer;
}

}  // namespace

std::optional<HttpListener> HttpListener::Open(ListenAddress* address) {
  absl::StatusOr<std::vector<SocketAddress>> resolved = Resolve(*address);
  if (!resolved.ok()) return std::nullopt;
  HttpListener result;
  for (SocketAddress& each : *resolved) {
    if (each.family() != AF_INET && each.family() != AF_INET6) continue;
    *PortOf(&each) = htons(address->port);
    FileDescriptor listener = Listen(each);
    if (!listener.ok()) {
      // A name may stand for IPv6 where there is none.
      if (errno == EADDRNOTAVAIL || errno == EAFNOSUPPORT) continue;
      return std::nullopt;
    }
    address->port = BoundPort(listener);
    result.sockets_.push_back(std::move(listener));
  }
  if (result.sockets_.empty()) return std::nullopt;
  return result;
}

HttpListener::Result HttpListener::Accept(const FileDescriptor& socket,
                                          FileDescriptor* connection,
                                          HttpPeer* peer) {
  while (true) {
    sockaddr_storage from = {};
    socklen_t size = sizeof(from);
    const int fd = accept4(socket.get(), reinterpret_cast<sockaddr*>(&from),
                           &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) {
      *connection = FileDescriptor(fd);
      *peer = PeerOf(from);
      return Result::kAccepted;
    }
    switch (errno) {
      case EAGAIN:
        return Result::kNobody;
      case EMFILE:
      case ENFILE:
      case ENOBUFS:
      case ENOMEM:
        // Linux looks for a descriptor before it looks whether anybody waits.
        return SomebodyWaits(socket) ? Result::kNoDescriptors : Result::kNobody;
      case EBADF:
      case EINVAL:
      case ENOTSOCK:
        return Result::kNobody;
      default:
        // That connection's own end, or a signal: there may be more.
        continue;
    }
  }
}

bool DescriptorReserve::Give() {
  if (held_.empty()) return false;
  held_.pop_back();
  return true;
}

void DescriptorReserve::Refill() {
  held_.reserve(kSize);
  while (held_.size() < kSize) {
    FileDescriptor spare(open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!spare.ok()) return;
    held_.push_back(std::move(spare));
  }
}

}  // namespace kvcompress
