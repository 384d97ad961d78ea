// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Messages of streams in protobuf's encoding (protobuf.dev/programming-guides/
// encoding). Messages that carry chunks are nearly all bytes. They are read and
// written here without the generated classes, which saves two copies of the
// bytes; on the wire they are plain protobuf. Every other message goes through
// the generated classes. Thread compatible.

#ifndef KVCOMPRESS_WIRE_MESSAGES_H_
#define KVCOMPRESS_WIRE_MESSAGES_H_

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
  // Whether `message` is the bytes field `field` and nothing else. Then its
  // pieces replace those of the message before. The tag and the length must lie
  // in the first piece, as they do in what gRPC receives.
  bool TakeBytes(const grpc::ByteBuffer& message, int field);

  // The next piece, valid until the call that returns an empty one, since there
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

// A message whose bytes field `field` is `data`. Holds a reference to `data`.
grpc::ByteBuffer SerializeBytes(int field, const grpc::Slice& data);

// A message whose field `field` is a FileChunk of these bytes at this offset.
// The bytes are moved into it.
grpc::ByteBuffer SerializeChunk(int field, uint64_t offset, std::string data);

}  // namespace kvcompress

#endif  // KVCOMPRESS_WIRE_MESSAGES_H_
