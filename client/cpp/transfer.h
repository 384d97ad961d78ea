// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Moving a source into a stream, and at the same time messages out of it.
// Memory holds one chunk of the source, and what gRPC's flow control allows.

#ifndef KVCOMPRESS_CLIENT_CPP_TRANSFER_H_
#define KVCOMPRESS_CLIENT_CPP_TRANSFER_H_

#include <grpcpp/client_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>
#include <grpcpp/support/status.h>
#include <grpcpp/support/sync_stream.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <thread>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/cpp/status.h"
#include "kvcompress/byte_stream.h"
#include "wire/messages.h"

namespace kvcompress {

// Most bytes of input in one message.
inline constexpr size_t kChunkBytes = 1 << 20;

// How far sending came.
struct SendResult {
  absl::Status source;    // the first error of the source
  bool complete = false;  // every byte was handed to gRPC
};

// Sends `first`, then `source` in the bytes field `field` of messages, then the
// end of the stream. Stops early when the call is over.
template <typename Stream>
SendResult SendAll(const grpc::ByteBuffer& first, ByteSource* source, int field,
                   Stream* stream) {
  SendResult result;
  if (!stream->Write(first)) return result;
  while (true) {
    auto* const chunk = static_cast<char*>(std::malloc(kChunkBytes));
    if (chunk == nullptr) {
      result.source = absl::ResourceExhaustedError("out of memory");
      return result;
    }
    const absl::StatusOr<size_t> size =
        source->Read(absl::MakeSpan(chunk, kChunkBytes));
    // Frees the chunk once it is sent.
    const grpc::Slice slice(chunk, size.value_or(0), &std::free);
    if (!size.ok()) {
      result.source = size.status();
      return result;
    }
    if (*size == 0) break;
    if (!stream->Write(SerializeBytes(field, slice))) return result;
  }
  result.complete = true;
  stream->WritesDone();
  return result;
}

// The one status that explains why a call ended. `local` is an error on this
// side that made it cancel the call, if any. An error of the server goes before
// everything that may have followed from it.
inline absl::Status Outcome(const grpc::Status& server,
                            const absl::Status& local, const SendResult& sent) {
  if (!server.ok() && server.error_code() != grpc::StatusCode::CANCELLED) {
    return FromGrpcStatus(server);
  }
  if (!local.ok()) return local;
  if (!server.ok()) return FromGrpcStatus(server);
  if (!sent.complete) {
    return absl::InternalError("the server ended before the input did");
  }
  return absl::OkStatus();
}

// Runs a bidirectional call to its end: sends on a thread of its own, and hands
// every response to `receive` on the caller's. An error of either side cancels
// the call; all is joined on return.
template <typename Response>
absl::Status Transfer(
    grpc::ClientContext* context,
    grpc::ClientReaderWriter<grpc::ByteBuffer, Response>* stream,
    const grpc::ByteBuffer& first, ByteSource* source, int field,
    absl::FunctionRef<absl::Status(const Response&)> receive) {
  SendResult sent;
  std::atomic<bool> over{false};
  std::thread sender([&] {
    sent = SendAll(first, source, field, stream);
    if (sent.source.ok()) return;
    if (over) {
      // Stopped from here. To cancel the call now would hide its status.
      sent.source = absl::OkStatus();
    } else {
      context->TryCancel();
    }
  });
  absl::Status received;
  Response response;
  while (stream->Read(&response)) {
    if (!received.ok()) continue;
    received = receive(response);
    if (!received.ok()) context->TryCancel();
  }
  over = true;
  source->Cancel();
  sender.join();
  return Outcome(stream->Finish(), received.ok() ? sent.source : received,
                 sent);
}

}  // namespace kvcompress

#endif  // KVCOMPRESS_CLIENT_CPP_TRANSFER_H_
