// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "address.h"

#include <netdb.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "kvcompress/error.h"

namespace kvcompress {
namespace {

constexpr size_t kMaxPath = sizeof(sockaddr_un::sun_path) - 1;

// A socket that closes itself.
class Socket {
 public:
  explicit Socket(int family)
      : fd_(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {}
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  int fd() const { return fd_; }

 private:
  const int fd_;
};

absl::Status BadAddress(absl::string_view text) {
  return absl::InvalidArgumentError(absl::StrCat(
      QuoteName(text),
      " is not an address: expected HOST:PORT, [IPV6]:PORT or unix:PATH"));
}

absl::StatusOr<ListenAddress> ParsePath(absl::string_view text) {
  absl::string_view path = absl::StripPrefix(text, "unix:");
  if (absl::ConsumePrefix(&path, "//") && !absl::StartsWith(path, "/")) {
    return BadAddress(text);
  }
  if (path.empty()) return BadAddress(text);
  if (path.size() > kMaxPath) {
    return absl::InvalidArgumentError(
        absl::StrCat("the path of ", QuoteName(text), " is longer than the ",
                     kMaxPath, " bytes of a Unix socket address"));
  }
  ListenAddress address;
  address.path = std::string(path);
  return address;
}

sockaddr_un UnixSockaddr(const std::string& path) {
  sockaddr_un sockaddr = {};
  sockaddr.sun_family = AF_UNIX;
  std::memcpy(sockaddr.sun_path, path.data(), std::min(path.size(), kMaxPath));
  return sockaddr;
}

int TryBind(int family, const sockaddr* sockaddr, socklen_t size) {
  const Socket probe(family);
  if (probe.fd() < 0) return errno;
  const int on = 1;
  setsockopt(probe.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  return bind(probe.fd(), sockaddr, size) == 0 ? 0 : errno;
}

}  // namespace

bool ListenAddress::is_local() const {
  return is_unix() || host == "localhost" || host == "::1" ||
         absl::StartsWith(host, "127.");
}

std::string ListenAddress::ToString() const {
  if (is_unix()) return absl::StrCat("unix:", path);
  if (absl::StrContains(host, ':')) return absl::StrCat("[", host, "]:", port);
  return absl::StrCat(host, ":", port);
}

absl::StatusOr<ListenAddress> ParseListenAddress(absl::string_view text) {
  if (absl::StrContains(text, '\0')) return BadAddress(text);
  if (absl::StartsWith(text, "unix:")) return ParsePath(text);
  const size_t colon = text.rfind(':');
  if (colon == absl::string_view::npos) return BadAddress(text);
  absl::string_view host = text.substr(0, colon);
  const bool bracketed =
      absl::ConsumePrefix(&host, "[") && absl::ConsumeSuffix(&host, "]");
  if (host.empty() || host.find_first_of("[]/ ") != absl::string_view::npos ||
      absl::StrContains(host, ':') != bracketed) {
    return BadAddress(text);
  }
  const absl::string_view digits = text.substr(colon + 1);
  uint32_t port = 0;
  if (digits.find_first_not_of("0123456789") != absl::string_view::npos ||
      !absl::SimpleAtoi(digits, &port) || port > 65535) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the port of ", QuoteName(text), " is not a number from 0 to 65535"));
  }
  ListenAddress address;
  address.host = std::string(host);
  address.port = static_cast<uint16_t>(port);
  return address;
}

absl::Status RemoveStaleSocket(const std::string& path) {
  struct stat info = {};
  if (lstat(path.c_str(), &info) != 0) return absl::OkStatus();
  if (!S_ISSOCK(info.st_mode)) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " exists and is not a socket"));
  }
  const sockaddr_un target = UnixSockaddr(path);
  const Socket probe(AF_UNIX);
  const bool answered =
      connect(probe.fd(), reinterpret_cast<const sockaddr*>(&target),
              sizeof(target)) == 0;
  if (answered || errno == EAGAIN) {
    return absl::FailedPreconditionError(
        absl::StrCat("another process is listening on ", path));
  }
  if (errno != ECONNREFUSED) {
    return absl::FailedPreconditionError(absl::StrCat(
        "cannot tell whether ", path, " is in use: ", strerror(errno)));
  }
  if (unlink(path.c_str()) != 0 && errno != ENOENT) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the stale socket ", path, " cannot be removed: ", strerror(errno)));
  }
  return absl::OkStatus();
}

std::string ExplainBindFailure(const ListenAddress& address) {
  int error = 0;
  if (address.is_unix()) {
    const sockaddr_un target = UnixSockaddr(address.path);
    error = TryBind(AF_UNIX, reinterpret_cast<const sockaddr*>(&target),
                    sizeof(target));
    if (error == 0) unlink(address.path.c_str());
  } else {
    addrinfo hints = {};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_PASSIVE;
    addrinfo* found = nullptr;
    const int failure =
        getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(),
                    &hints, &found);
    if (failure != 0) return gai_strerror(failure);
    const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(
        found, &freeaddrinfo);
    for (; found != nullptr && error == 0; found = found->ai_next) {
      error = TryBind(found->ai_family, found->ai_addr, found->ai_addrlen);
    }
  }
  return error == 0 ? "the reason is gone" : strerror(error);
}

}  // namespace kvcompress
