// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Messages of streams as they are on the wire. Those that carry chunks are
// nearly all bytes: what is said here in protobuf's encoding saves them two
// copies. What is on the wire is plain protobuf all the same, and every other
// message goes through the generated classes.

#ifndef KVCOMPRESS_PROTO_WIRE_WIRE_H_
#define KVCOMPRESS_PROTO_WIRE_WIRE_H_

#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace kvcompress {

// The content of a message in the pieces in which gRPC received it.
class Pieces {
 public:
  // Whether `message` is the bytes field `field`, of a number below 16, and
  // nothing else; then its pieces are taken, in the place of those before.
  bool TakeBytes(const grpc::ByteBuffer& message, int field);

  // The next piece, valid until the call that gives an empty one, since there
  // is none left.
  absl::string_view Next();

 private:
  std::vector<grpc::Slice> slices_;
  size_t next_ = 0;
  size_t skip_ = 0;  // of the next one, before the content
};

// Reads a message; false when the bytes are none of that type.
template <typename Message>
bool Parse(const grpc::ByteBuffer& bytes, Message* message) {
  grpc::ByteBuffer copy(bytes);  // of references
  return grpc::SerializationTraits<Message>::Deserialize(&copy, message).ok();
}

// Writes a message.
template <typename Message>
grpc::ByteBuffer Serialize(const Message& message) {
  grpc::ByteBuffer bytes;
  bool own = false;
  grpc::SerializationTraits<Message>::Serialize(message, &bytes, &own);
  return bytes;
}

// A message whose bytes field `field`, of a number below 16, is `data`.
grpc::ByteBuffer SerializeBytes(int field, const grpc::Slice& data);

// A message whose field `field`, of a number below 16, is a FileChunk of these
// bytes at this offset. The bytes are moved into it.
grpc::ByteBuffer SerializeChunk(int field, uint64_t offset, std::string data);

}  // namespace kvcompress

#endif  // KVCOMPRESS_PROTO_WIRE_WIRE_H_
