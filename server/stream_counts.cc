// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Reads gRPC's channelz: JSON of
// https://github.com/grpc/grpc/blob/v1.51.1/src/proto/grpc/channelz/channelz.proto,
// in which numbers of 64 bits are strings and a zero is left out.

#include "stream_counts.h"

#include <grpc/grpc.h>
#include <grpc/support/alloc.h>
#include <netinet/in.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace kvcompress {
namespace {

using Json = nlohmann::json;

constexpr intptr_t kAtOnce = 500;  // of servers or sockets in an answer

// Takes over what gRPC has allocated; null, or what is no JSON, is nothing.
Json Parsed(char* text) {
  if (text == nullptr) return Json::object();
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  gpr_free(text);
  return json.is_object() ? json : Json::object();
}

uint64_t NumberOf(const Json& object, const char* key) {
  uint64_t number = 0;
  return absl::SimpleAtoi(object.value(key, "0"), &number) ? number : 0;
}

std::string KeyOf(const Json& socket) {
  const Json remote = socket.value("remote", Json::object());
  const auto address = remote.find("tcpip_address");
  std::string host;
  if (address == remote.end() ||
      !absl::Base64Unescape(address->value("ip_address", ""), &host)) {
    return "";
  }
  return absl::StrCat(host, ":", address->value("port", 0));
}

void CountSocket(intptr_t id, StreamCounts* counts) {
  const Json answer = Parsed(grpc_channelz_get_socket(id));
  const Json socket = answer.value("socket", Json::object());
  const Json data = socket.value("data", Json::object());
  const uint64_t started = NumberOf(data, "streamsStarted");
  const uint64_t ended =
      NumberOf(data, "streamsSucceeded") + NumberOf(data, "streamsFailed");
  (*counts)[KeyOf(socket)] += started - std::min(started, ended);
}

void CountSocketsOf(intptr_t server, StreamCounts* counts) {
  intptr_t next = 0;
  for (bool more = true; more;) {
    const Json answer =
        Parsed(grpc_channelz_get_server_sockets(server, next, kAtOnce));
    const Json sockets = answer.value("socketRef", Json::array());
    for (const Json& each : sockets) {
      const auto id = static_cast<intptr_t>(NumberOf(each, "socketId"));
      CountSocket(id, counts);
      next = id + 1;
    }
    more = !sockets.empty() && !answer.value("end", false);
  }
}

}  // namespace

std::string PeerKey(const SocketAddress& peer) {
  const auto key = [](const void* address, size_t size, in_port_t port) {
    return absl::StrCat(
        absl::string_view(static_cast<const char*>(address), size), ":",
        ntohs(port));
  };
  if (peer.family() == AF_INET) {
    const auto* const in = reinterpret_cast<const sockaddr_in*>(peer.get());
    return key(&in->sin_addr, sizeof(in->sin_addr), in->sin_port);
  }
  if (peer.family() == AF_INET6) {
    const auto* const in = reinterpret_cast<const sockaddr_in6*>(peer.get());
    constexpr size_t kMapped = 12;  // bytes before the address of IPv4
    const size_t skipped = IN6_IS_ADDR_V4MAPPED(&in->sin6_addr) ? kMapped : 0;
    return key(&in->sin6_addr.s6_addr[skipped], sizeof(in->sin6_addr) - skipped,
               in->sin6_port);
  }
  return "";
}

StreamCounts CountStreams() {
  StreamCounts counts;
  const Json answer = Parsed(grpc_channelz_get_servers(0));
  for (const Json& server : answer.value("server", Json::array())) {
    const Json ref = server.value("ref", Json::object());
    CountSocketsOf(static_cast<intptr_t>(NumberOf(ref, "serverId")), &counts);
  }
  return counts;
}

}  // namespace kvcompress
