// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "file_descriptor.h"
#include "kvcompress/error.h"

namespace kvcompress {
namespace {

constexpr size_t kMaxPath = sizeof(sockaddr_un::sun_path) - 1;

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

SocketAddress UnixSocketAddress(const std::string& path) {
  sockaddr_un name = {};
  name.sun_family = AF_UNIX;
  path.copy(name.sun_path, kMaxPath);
  SocketAddress address;
  std::memcpy(&address.storage, &name, sizeof(name));
  address.size = sizeof(name);
  return address;
}

FileDescriptor NewSocket(const SocketAddress& address) {
  return FileDescriptor(
      socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

// 0 or errno.
int TryConnect(const SocketAddress& target) {
  const FileDescriptor probe = NewSocket(target);
  return connect(probe.get(), target.get(), target.size) == 0 ? 0 : errno;
}

}  // namespace

bool ListenAddress::is_local() const {
  if (is_unix() || host == "localhost") return true;
  in_addr v4 = {};
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) {
    return ntohl(v4.s_addr) >> 24 == IN_LOOPBACKNET;
  }
  in6_addr v6 = {};
  return inet_pton(AF_INET6, host.c_str(), &v6) == 1 &&
         IN6_IS_ADDR_LOOPBACK(&v6);
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
  const bool bracketed = absl::StartsWith(host, "[");
  if (bracketed) {
    host.remove_prefix(1);
    if (!absl::ConsumeSuffix(&host, "]")) return BadAddress(text);
  }
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

ListenAddress Reachable(ListenAddress address) {
  if (address.host == "0.0.0.0") address.host = "127.0.0.1";
  if (address.host == "::") address.host = "::1";
  return address;
}

absl::Status RemoveStaleSocket(const std::string& path) {
  struct stat info = {};
  if (lstat(path.c_str(), &info) != 0) return absl::OkStatus();
  if (!S_ISSOCK(info.st_mode)) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " exists and is not a socket"));
  }
  const int error = TryConnect(UnixSocketAddress(path));
  if (error == 0 || error == EAGAIN) {
    return absl::FailedPreconditionError(
        absl::StrCat("another process is listening on ", path));
  }
  if (error != ECONNREFUSED) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot tell whether ", path,
                     " is in use: ", std::generic_category().message(error)));
  }
  if (unlink(path.c_str()) != 0 && errno != ENOENT) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the stale socket ", path,
        " cannot be removed: ", std::generic_category().message(errno)));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<SocketAddress>> Resolve(
    const ListenAddress& address) {
  if (address.is_unix()) {
    return std::vector<SocketAddress>{UnixSocketAddress(address.path)};
  }
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int failure =
      getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(),
                  &hints, &found);
  if (failure != 0) return absl::NotFoundError(gai_strerror(failure));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found,
                                                                 &freeaddrinfo);
  std::vector<SocketAddress> addresses;
  for (; found != nullptr; found = found->ai_next) {
    SocketAddress& next = addresses.emplace_back();
    std::memcpy(&next.storage, found->ai_addr, found->ai_addrlen);
    next.size = found->ai_addrlen;
  }
  return addresses;
}

}  // namespace kvcompress
