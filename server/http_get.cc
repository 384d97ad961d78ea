// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "http_get.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "connect.h"
#include "file_descriptor.h"

namespace kvcompress {
namespace {

// "HTTP/1.1 200"
constexpr size_t kStatusBytes = 12;

absl::Status SendAll(const FileDescriptor& connection, absl::string_view bytes,
                     Deadline end) {
  while (!bytes.empty()) {
    if (absl::Status ready = Await(connection, POLLOUT, end); !ready.ok()) {
      return ready;
    }
    const ssize_t sent =
        send(connection.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      bytes.remove_prefix(static_cast<size_t>(sent));
    } else if (errno != EAGAIN && errno != EINTR) {
      return SocketError(errno);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<int> ReceiveStatus(const FileDescriptor& connection,
                                  Deadline end) {
  std::string line;
  while (line.size() < kStatusBytes) {
    if (absl::Status ready = Await(connection, POLLIN, end); !ready.ok()) {
      return ready;
    }
    char bytes[kStatusBytes];
    const ssize_t got =
        recv(connection.get(), bytes, kStatusBytes - line.size(), 0);
    if (got > 0) {
      line.append(bytes, static_cast<size_t>(got));
    } else if (got == 0) {
      return absl::UnavailableError("the connection was closed");
    } else if (errno != EAGAIN && errno != EINTR) {
      return SocketError(errno);
    }
  }
  int status = 0;
  if (!absl::StartsWith(line, "HTTP/1.") || line[8] != ' ' ||
      !absl::SimpleAtoi(line.substr(9), &status)) {
    return absl::UnavailableError("what answered is not HTTP/1.x");
  }
  return status;
}

}  // namespace

absl::StatusOr<int> GetHttpStatus(const ListenAddress& address,
                                  absl::string_view path,
                                  absl::Duration timeout) {
  const Deadline end =
      std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(timeout);
  const absl::StatusOr<FileDescriptor> connection = Connect(address, end);
  if (!connection.ok()) return connection.status();
  const std::string request =
      absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: ", address.ToString(),
                   "\r\nConnection: close\r\n\r\n");
  if (absl::Status sent = SendAll(*connection, request, end); !sent.ok()) {
    return sent;
  }
  return ReceiveStatus(*connection, end);
}

}  // namespace kvcompress
