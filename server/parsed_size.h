// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// What a message on the wire becomes when it is parsed. Two bytes may make an
// object of a hundred, so that a message of a legal size takes gigabytes; this
// walks over the wire format first, without keeping anything, and says how much
// it can be. The rules are those of protobuf 3.21 with glibc's allocator.

#ifndef KVCOMPRESS_SERVER_PARSED_SIZE_H_
#define KVCOMPRESS_SERVER_PARSED_SIZE_H_

#include <google/protobuf/descriptor.h>
#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace kvcompress {

// Most elements of a repeated field in a request, wherever it is in there.
struct ElementLimit {
  std::string field;  // full name, such as "kvcompress.v1.TensorTable.tensors"
  std::string shown;  // from the request on, such as "tensors.tensors"
  uint64_t most = 0;
  // Of the error for more.
  absl::StatusCode code = absl::StatusCode::kInvalidArgument;
  std::string reason;
};

// Messages of one type. Thread safe.
class ParsedSize {
 public:
  struct Result {
    // No fewer bytes than the heap gets to hold while the message is parsed.
    uint64_t bytes = 0;
    // Elements of the field of each ElementLimit, in their order.
    std::vector<uint64_t> elements;
  };

  // A limit whose field is in no message that `type` can hold does nothing.
  ParsedSize(const google::protobuf::Descriptor& type,
             std::vector<ElementLimit> limits);
  ~ParsedSize();
  ParsedSize(const ParsedSize&) = delete;
  ParsedSize& operator=(const ParsedSize&) = delete;

  // What `message` becomes. Bytes fields are passed over; the rest is looked at
  // once, in time proportional to its size. Looks no further once `bytes` is
  // larger than `enough`. INVALID_ARGUMENT for what is no message of the type:
  // broken, nested deeper than 100, or a string that is not UTF-8; the error of
  // an ElementLimit. Throws std::bad_alloc.
  absl::StatusOr<Result> Of(const grpc::ByteBuffer& message,
                            uint64_t enough) const;

 private:
  struct Field;
  struct Shape;
  class Walk;

  const Shape* ShapeOf(const google::protobuf::Descriptor& type);

  const std::vector<ElementLimit> limits_;
  std::unordered_map<const google::protobuf::Descriptor*,
                     std::unique_ptr<Shape>>
      shapes_;
  const Shape* top_ = nullptr;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_PARSED_SIZE_H_
