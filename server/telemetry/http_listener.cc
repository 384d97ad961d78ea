// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "telemetry/http_listener.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "listening_socket.h"

namespace kvcompress {
namespace {

// Requests are small, and an answer that is sent to many is shared where it
// lies here. What was sent and is never acknowledged is given up, also when the
// connection is closed here, as after an answer.
constexpr ListeningOptions kListening = {.backlog = SOMAXCONN,
                                         .user_timeout_ms = 10'000,
                                         .receive_buffer_bytes = 16 << 10,
                                         .send_buffer_bytes = 32 << 10};

bool SomebodyWaits(const FileDescriptor& listener) {
  pollfd polled = {listener.get(), POLLIN, 0};
  return poll(&polled, 1, 0) > 0;
}

}  // namespace

absl::StatusOr<HttpListener> HttpListener::Open(ListenAddress* address) {
  absl::StatusOr<std::vector<FileDescriptor>> sockets =
      ListenOn(kListening, address);
  if (!sockets.ok()) return sockets.status();
  HttpListener result;
  result.sockets_ = *std::move(sockets);
  return result;
}

HttpListener::Result HttpListener::Accept(const FileDescriptor& socket,
                                          FileDescriptor* connection,
                                          HttpPeer* peer) {
  while (true) {
    SocketAddress from;
    from.size = sizeof(from.storage);
    const int fd =
        accept4(socket.get(), reinterpret_cast<sockaddr*>(&from.storage),
                &from.size, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) {
      *connection = FileDescriptor(fd);
      *peer = HostKey(from);
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
