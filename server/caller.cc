// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "caller.h"

#include <grpc/grpc_security_constants.h>

#include <algorithm>
#include <random>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace kvcompress {
namespace {

constexpr char kRequestId[] = "x-request-id";
constexpr char kTraceparent[] = "traceparent";
constexpr char kUnix[] = "unix";
constexpr char kWithin[] = "fd";  // an end of a pair of sockets
// Subject alternative names that are identities. What an authority writes into
// the others, such as addresses of e-mail, may be a client's own choice.
constexpr const char* kIdentities[] = {GRPC_PEER_DNS_PROPERTY_NAME,
                                       GRPC_PEER_URI_PROPERTY_NAME,
                                       GRPC_PEER_IP_PROPERTY_NAME};

std::string RandomId() {
  thread_local std::mt19937_64 random{(uint64_t{std::random_device{}()} << 32) ^
                                      std::random_device{}()};
  return absl::StrCat(absl::Hex(random(), absl::kZeroPad16),
                      absl::Hex(random(), absl::kZeroPad16));
}

// Lower case only, as the specification has it.
bool IsHex(absl::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isdigit(c) || (c >= 'a' && c <= 'f');
  });
}

bool IsZero(absl::string_view text) {
  return text.find_first_not_of('0') == absl::string_view::npos;
}

// The value of a key that was sent exactly once; or empty.
absl::string_view Sent(const grpc::CallbackServerContext& context,
                       const char* key) {
  const auto& metadata = context.client_metadata();
  const auto [begin, end] = metadata.equal_range(key);
  if (begin == end || std::next(begin) != end) return "";
  return {begin->second.data(), begin->second.size()};
}

}  // namespace

bool IsRequestId(absl::string_view text) {
  return !text.empty() && text.size() <= 64 &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.';
         });
}

// version "-" trace-id "-" parent-id "-" trace-flags: 2, 32, 16 and 2 digits.
bool IsTraceparent(absl::string_view text) {
  constexpr size_t kSize = 55;
  if (text.size() < kSize || text.size() > 256) return false;
  const absl::string_view version = text.substr(0, 2);
  if (!IsHex(version) || version == "ff") return false;
  if (text.size() > kSize && (version == "00" || text[kSize] != '-')) {
    return false;
  }
  const bool printable = std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isalnum(c) || c == '-';
  });
  const absl::string_view trace = text.substr(3, 32);
  const absl::string_view parent = text.substr(36, 16);
  return printable && text[2] == '-' && text[35] == '-' && text[52] == '-' &&
         IsHex(trace) && !IsZero(trace) && IsHex(parent) && !IsZero(parent) &&
         IsHex(text.substr(53, 2));
}

std::string HostOfPeer(absl::string_view peer) {
  if (absl::StartsWith(peer, kUnix)) return kUnix;
  return std::string(peer.substr(0, peer.rfind(':')));
}

Caller IdentifyCaller(grpc::CallbackServerContext* context) {
  Caller caller;
  caller.client = HostOfPeer(context->peer());
  caller.is_local = caller.client == kUnix || caller.client == kWithin;
  for (const char* const type : kIdentities) {
    for (const grpc::string_ref& name :
         context->auth_context()->FindPropertyValues(type)) {
      // No certificate makes a Unix socket.
      if (name == kUnix) continue;
      caller.identities.emplace_back(name.data(), name.size());
    }
  }
  if (!caller.identities.empty()) {
    caller.client = absl::StrJoin(caller.identities, ",");
  } else if (caller.client == kUnix) {
    caller.identities.emplace_back(kUnix);
  }

  const absl::string_view request_id = Sent(*context, kRequestId);
  caller.names.request_id =
      IsRequestId(request_id) ? std::string(request_id) : RandomId();
  context->AddTrailingMetadata(kRequestId, caller.names.request_id);
  const absl::string_view traceparent = Sent(*context, kTraceparent);
  if (IsTraceparent(traceparent)) {
    caller.names.traceparent = std::string(traceparent);
    context->AddTrailingMetadata(kTraceparent, caller.names.traceparent);
  }
  return caller;
}

}  // namespace kvcompress
