// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "connect.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <system_error>
#include <vector>

namespace kvcompress {
namespace {

absl::StatusOr<FileDescriptor> ConnectTo(const SocketAddress& target,
                                         Deadline deadline) {
  FileDescriptor connection(
      socket(target.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!connection.ok()) return SocketError(errno);
  if (connect(connection.get(), target.get(), target.size) == 0) {
    return connection;
  }
  // A Unix socket whose queue is full does not report when it has space.
  if (errno == EAGAIN) {
    return absl::DeadlineExceededError("the queue of connections is full");
  }
  if (errno != EINPROGRESS) return SocketError(errno);
  absl::Status ready = Await(connection, POLLOUT, deadline);
  if (!ready.ok()) return ready;
  int error = 0;
  socklen_t size = sizeof(error);
  getsockopt(connection.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) return SocketError(error);
  return connection;
}

}  // namespace

absl::Status SocketError(int error) {
  return absl::UnavailableError(std::generic_category().message(error));
}

absl::Status Await(const FileDescriptor& socket, int16_t events,
                   Deadline deadline) {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) return absl::DeadlineExceededError("no answer");
    pollfd file = {socket.get(), events, 0};
    const int ready = poll(&file, 1, static_cast<int>(left.count()));
    if (ready > 0) return absl::OkStatus();
    if (ready < 0 && errno != EINTR) return SocketError(errno);
  }
}

absl::StatusOr<FileDescriptor> Connect(const ListenAddress& address,
                                       Deadline deadline) {
  const absl::StatusOr<std::vector<SocketAddress>> targets = Resolve(address);
  if (!targets.ok()) return absl::UnavailableError(targets.status().message());
  absl::StatusOr<FileDescriptor> connection =
      absl::UnavailableError("it has no address");
  for (const SocketAddress& target : *targets) {
    connection = ConnectTo(target, deadline);
    if (connection.ok()) break;
  }
  return connection;
}

}  // namespace kvcompress
