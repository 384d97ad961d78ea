// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// From the bytes of a request to the message, within limits: what parsing takes
// is known, and reserved, before it is done.

#ifndef KVCOMPRESS_SERVER_REQUEST_H_
#define KVCOMPRESS_SERVER_REQUEST_H_

#include <google/protobuf/descriptor.h>
#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "call.h"
#include "kvcompress/error.h"
#include "parsed_size.h"
#include "wire/messages.h"

namespace kvcompress {

// Most layers, and most values of all layers, of attention in a request.
inline constexpr uint64_t kMaxAttentionLayers = 4096;
inline constexpr uint64_t kMaxAttentionValues = 4 << 20;

// Memory that a request needs beyond twice its size, in bytes.
struct RequestMemory {
  // To parse it and to take over what it says.
  uint64_t taking = 0;
  // For as long as the call lasts, of options.
  uint64_t kept = 0;
};

// How large messages of a type become; with the limits of the API.
std::unique_ptr<const ParsedSize> NewParsedSize(
    const google::protobuf::Descriptor& request);

// The same, made once.
template <typename Request>
const ParsedSize& ParsedSizeOf() {
  static const ParsedSize* const size =
      NewParsedSize(*Request::descriptor()).release();
  return *size;
}

// Of a request of the size `wire` on the wire.
RequestMemory MemoryFor(uint64_t wire, const ParsedSize::Result& parsed);

// Reads a request of a stream. Reserves for it, and for `held` bytes that the
// call holds of earlier ones and `working` of its codec; `*memory` is what for.
// The errors of ParsedSize::Of and Call::Reserve.
template <typename Request>
absl::Status ParseRequest(const grpc::ByteBuffer& bytes, uint64_t held,
                          uint64_t working, Call* call, Request* request,
                          RequestMemory* memory) {
  const absl::StatusOr<ParsedSize::Result> parsed =
      ParsedSizeOf<Request>().Of(bytes, call->most_memory());
  if (!parsed.ok()) return parsed.status();
  *memory = MemoryFor(bytes.Length(), *parsed);
  absl::Status status =
      call->ReserveStream(bytes.Length(), working, held + memory->taking);
  if (!status.ok() || Parse(bytes, request)) return status;
  return MakeError(absl::StatusCode::kInvalidArgument,
                   "the message does not match the request type",
                   {.reason = "INVALID_MESSAGE", .field = "message"});
}

// Reads a request that is a few bytes when it is honest, for which nothing is
// reserved. INVALID_ARGUMENT for one of more than kMaxSmallRequest bytes.
inline constexpr uint64_t kMaxSmallRequest = 64 << 10;

absl::Status CheckSmallRequest(const grpc::ByteBuffer& bytes,
                               const ParsedSize& size);

template <typename Request>
absl::Status ParseSmallRequest(const grpc::ByteBuffer& bytes,
                               const ParsedSize& size, Request* request) {
  absl::Status status = CheckSmallRequest(bytes, size);
  if (!status.ok() || Parse(bytes, request)) return status;
  return MakeError(absl::StatusCode::kInvalidArgument,
                   "the message does not match the request type",
                   {.reason = "INVALID_MESSAGE", .field = "message"});
}

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_REQUEST_H_
