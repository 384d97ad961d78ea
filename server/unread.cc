// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "unread.h"

#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cstddef>
#include <optional>

namespace kvcompress {
namespace {

// Bytes that the peer of a TCP connection has acknowledged; nothing for other
// sockets, and where Linux does not count them.
std::optional<uint64_t> Acknowledged(int fd) {
  tcp_info info = {};
  socklen_t size = sizeof(info);
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 ||
      size < offsetof(tcp_info, tcpi_bytes_acked) +
                 sizeof(info.tcpi_bytes_acked)) {
    return std::nullopt;
  }
  return info.tcpi_bytes_acked;
}

bool CanWrite(int fd) {
  pollfd file = {fd, POLLOUT, 0};
  return poll(&file, 1, 0) != 0;
}

}  // namespace

void UnreadTimer::SetLimit(int fd, bool moved, int queued) {
  if (limit_ == 0) {
    socklen_t size = sizeof(limit_);
    getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &limit_, &size);
  }
  // One that was filled under the low limit is a third of the high one at most.
  const bool lower = !moved && queued > limit_ / 2;
  if (lower == lowered_) return;
  // Linux doubles what it is given.
  const int value = (lower ? limit_ / 4 : limit_) / 2;
  setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &value, sizeof(value));
  lowered_ = lower;
}

UnreadTimer::Clock::duration UnreadTimer::Look(int fd, Clock::time_point now) {
  int queued = 0;
  bool waits = ioctl(fd, SIOCOUTQ, &queued) == 0 && queued > 0;
  const std::optional<uint64_t> acknowledged =
      waits ? Acknowledged(fd) : std::nullopt;
  if (waits && !acknowledged) waits = !CanWrite(fd);
  const uint64_t mark = acknowledged.value_or(static_cast<uint64_t>(queued));
  const bool moved = !waits || !waits_ || mark != mark_;
  if (moved) since_ = now;
  if (!acknowledged && (waits || lowered_)) SetLimit(fd, moved, queued);
  waits_ = waits;
  mark_ = mark;
  return now - since_;
}

}  // namespace kvcompress
