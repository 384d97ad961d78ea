// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "client/cpp/target.h"

#include <arpa/inet.h>
#include <sys/un.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "kvcompress/error.h"

namespace kvcompress {
namespace {

constexpr size_t kMaxSocketPath = sizeof(sockaddr_un::sun_path) - 1;
constexpr uint32_t kMaxPort = 65535;

absl::Status BadTarget(absl::string_view text, absl::string_view why,
                       std::optional<uint64_t> limit = std::nullopt) {
  return MakeError(absl::StatusCode::kInvalidArgument,
                   absl::StrCat("the address ", QuoteName(text), " ", why),
                   {.reason = "INVALID_ADDRESS", .limit = limit});
}

std::string PercentEncoded(absl::string_view path) {
  std::string encoded;
  for (const char c : path) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
        absl::StrContains("/-._~", c)) {
      encoded += c;
    } else {
      absl::StrAppendFormat(&encoded, "%%%02X", static_cast<unsigned char>(c));
    }
  }
  return encoded;
}

absl::StatusOr<Target> ParseSocket(absl::string_view text) {
  absl::string_view path = absl::StripPrefix(text, "unix:");
  if (absl::ConsumePrefix(&path, "//") && !absl::StartsWith(path, "/")) {
    return BadTarget(text, "is none: expected unix:PATH or unix:///PATH");
  }
  if (path.empty()) return BadTarget(text, "has no path: expected unix:PATH");
  if (path.size() > kMaxSocketPath) {
    return BadTarget(
        text,
        absl::StrCat("has a path of ", path.size(), " bytes, and that of a ",
                     "Unix socket may have ", kMaxSocketPath,
                     ": use a shorter one, such as a link in /tmp"),
        kMaxSocketPath);
  }
  if (absl::StrContains(path, ',')) {
    return BadTarget(text,
                     "has a comma in its path, at which gRPC would cut it: "
                     "use a path without one, such as a link in /tmp");
  }
  return Target{.name = absl::StrCat("unix:", PercentEncoded(path))};
}

// What `text`, the path of a URI, stands for.
std::string PercentDecoded(absl::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    uint32_t code;
    if (text[i] == '%' && i + 2 < text.size() &&
        absl::SimpleHexAtoi(text.substr(i + 1, 2), &code)) {
      decoded += static_cast<char>(code);
      i += 2;
    } else {
      decoded += text[i];
    }
  }
  return decoded;
}

// Hosts and ports, with commas between them: what is left without the scheme.
std::string Addresses(absl::string_view text) {
  for (const absl::string_view scheme :
       {"dns:", "ipv4:", "ipv6:", "passthrough:"}) {
    if (!absl::ConsumePrefix(&text, scheme)) continue;
    // An authority, such as a name server, is of no concern here.
    if (absl::ConsumePrefix(&text, "//")) {
      text.remove_prefix(std::min(text.find('/'), text.size()));
    }
    absl::ConsumePrefix(&text, "/");
    return PercentDecoded(text);
  }
  return std::string(text);
}

// The host of one address, in lower case; nothing for a wrong port.
std::optional<std::string> HostOf(absl::string_view address) {
  absl::string_view host = address;
  std::optional<absl::string_view> port;
  if (absl::ConsumePrefix(&host, "[")) {
    const size_t end = std::min(host.find(']'), host.size());
    absl::string_view rest = host.substr(std::min(end + 1, host.size()));
    if (absl::ConsumePrefix(&rest, ":")) port = rest;
    host = host.substr(0, end);
  } else if (std::count(host.begin(), host.end(), ':') == 1) {
    const size_t colon = host.find(':');
    port = host.substr(colon + 1);
    host = host.substr(0, colon);
  }
  // gRPC keeps the lower 16 bits of a larger number.
  uint32_t number;
  const bool named = port == "http" || port == "https";
  if (port && !named &&
      (port->find_first_not_of("0123456789") != absl::string_view::npos ||
       !absl::SimpleAtoi(*port, &number) || number == 0 || number > kMaxPort)) {
    return std::nullopt;
  }
  return absl::AsciiStrToLower(absl::StripSuffix(host, "."));
}

// An IP address as bytes, four for IPv4, also where it is mapped into IPv6;
// empty for anything else.
std::string AddressBytes(const std::string& text) {
  char bytes[sizeof(in6_addr)];
  if (inet_pton(AF_INET, text.c_str(), bytes) == 1) {
    return std::string(bytes, sizeof(in_addr));
  }
  if (inet_pton(AF_INET6, text.c_str(), bytes) == 1) {
    const absl::string_view all(bytes, sizeof(in6_addr));
    constexpr absl::string_view kMapped("\0\0\0\0\0\0\0\0\0\0\xff\xff", 12);
    return std::string(absl::StripPrefix(all, kMapped));
  }
  return "";
}

bool IsInBlock(const std::string& address, absl::string_view block) {
  const std::pair<std::string, std::string> parts =
      absl::StrSplit(block, absl::MaxSplits('/', 1));
  const std::string network = AddressBytes(parts.first);
  uint32_t bits;
  if (network.size() != address.size() ||
      !absl::SimpleAtoi(parts.second, &bits) || bits > 8 * network.size()) {
    return false;
  }
  for (uint32_t i = 0; i < bits; ++i) {
    const int difference = network[i / 8] ^ address[i / 8];
    if ((difference >> (7 - i % 8) & 1) != 0) return false;
  }
  return true;
}

bool IsLoopback(const std::string& host) {
  const std::string address = AddressBytes(host);
  return host == "localhost" ||
         (!address.empty() &&
          (IsInBlock(address, "127.0.0.0/8") || IsInBlock(address, "::1/128")));
}

// Whether an entry of no_proxy is for `host`; both in lower case.
bool Names(absl::string_view entry, const std::string& host) {
  if (entry == "*") return true;
  const std::string address = AddressBytes(host);
  if (!address.empty()) {
    if (absl::ConsumePrefix(&entry, "[")) absl::ConsumeSuffix(&entry, "]");
    return absl::StrContains(entry, '/')
               ? IsInBlock(address, entry)
               : AddressBytes(std::string(entry)) == address;
  }
  absl::ConsumePrefix(&entry, ".");
  absl::ConsumeSuffix(&entry, ".");
  return !entry.empty() &&
         (host == entry || absl::EndsWith(host, absl::StrCat(".", entry)));
}

}  // namespace

absl::StatusOr<Target> ParseTarget(const std::string& text) {
  if (absl::StartsWith(text, "unix:")) return ParseSocket(text);
  Target target{.name = text};
  for (const absl::string_view scheme : {"unix-abstract:", "vsock:"}) {
    if (absl::StartsWith(text, scheme)) return target;
  }
  // What these lead to, gRPC alone knows.
  for (const absl::string_view scheme : {"xds:", "google-c2p:"}) {
    if (!absl::StartsWith(text, scheme)) continue;
    target.hosts.emplace_back();
    return target;
  }
  for (const absl::string_view address : absl::StrSplit(Addresses(text), ',')) {
    std::optional<std::string> host = HostOf(address);
    if (!host) {
      return BadTarget(text, "has a port that is not a number from 1 to 65535",
                       kMaxPort);
    }
    target.hosts.push_back(*std::move(host));
  }
  return target;
}

bool IsDirect(const Target& target, absl::string_view no_proxy) {
  std::vector<std::string> entries;
  for (const absl::string_view entry : absl::StrSplit(no_proxy, ',')) {
    entries.push_back(absl::AsciiStrToLower(absl::StripAsciiWhitespace(entry)));
  }
  const auto direct = [&](const std::string& host) {
    return IsLoopback(host) || std::any_of(entries.begin(), entries.end(),
                                           [&](const std::string& entry) {
                                             return Names(entry, host);
                                           });
  };
  return std::all_of(target.hosts.begin(), target.hosts.end(), direct);
}

}  // namespace kvcompress
