// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "wire/messages.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kvcompress/v1/compression_service.pb.h"

namespace kvcompress {
namespace {

// The bytes of a message in pieces of `size`.
grpc::ByteBuffer Cut(const std::string& bytes, size_t size) {
  std::vector<grpc::Slice> slices;
  for (size_t i = 0; i < bytes.size(); i += size) {
    slices.emplace_back(bytes.substr(i, size));
  }
  return {slices.data(), slices.size()};
}

std::string Join(Pieces* pieces) {
  std::string joined;
  while (true) {
    const absl::string_view piece = pieces->Next();
    if (piece.empty()) return joined;
    joined.append(piece.data(), piece.size());
  }
}

TEST(Wire, ReadsBytesHoweverTheyAreCut) {
  for (const size_t size : {0, 1, 127, 128, 20000}) {
    v1::CompressRequest request;
    request.set_safetensors(std::string(size, 'x'));
    const std::string bytes = request.SerializeAsString();
    for (const size_t cut :
         {size_t{4}, size_t{5}, size_t{4096}, size_t{1} << 20}) {
      Pieces pieces;
      ASSERT_TRUE(pieces.TakeBytes(
          Cut(bytes, cut), v1::CompressRequest::kSafetensorsFieldNumber));
      EXPECT_EQ(Join(&pieces), request.safetensors());
      EXPECT_EQ(Join(&pieces), "");
    }
  }
}

TEST(Wire, LeavesOtherMessagesAlone) {
  v1::CompressRequest options;
  options.mutable_options()->set_codec("int4");
  v1::CompressRequest bytes;
  bytes.set_safetensors("abc");
  const std::string whole = bytes.SerializeAsString();
  constexpr int kField = v1::CompressRequest::kSafetensorsFieldNumber;
  for (const std::string& message :
       {std::string(), options.SerializeAsString(), whole + whole, whole + "x",
        whole.substr(0, 2), whole.substr(0, 1),
        std::string("\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 12)}) {
    Pieces pieces;
    EXPECT_FALSE(pieces.TakeBytes(Cut(message, 100), kField)) << message;
  }
  // What protobuf takes is taken so, the second field instead of the first.
  v1::CompressRequest read;
  EXPECT_TRUE(Parse(Cut(whole + whole, 3), &read));
  EXPECT_EQ(read.safetensors(), "abc");
  EXPECT_FALSE(Parse(Cut(whole.substr(0, 3), 3), &read));
}

TEST(Wire, WritesWhatProtobufReads) {
  for (const uint64_t offset :
       {uint64_t{0}, uint64_t{127}, uint64_t{1} << 40}) {
    for (const size_t size : {0, 1, 300, 70000}) {
      const std::string data(size, 'y');
      v1::CompressResponse response;
      ASSERT_TRUE(
          Parse(SerializeChunk(v1::CompressResponse::kReconstructedFieldNumber,
                               offset, data),
                &response));
      EXPECT_EQ(response.reconstructed().offset(), offset);
      EXPECT_EQ(response.reconstructed().data(), data);
      v1::DecompressRequest request;
      ASSERT_TRUE(
          Parse(SerializeBytes(v1::DecompressRequest::kArtefactFieldNumber,
                               grpc::Slice(data)),
                &request));
      EXPECT_EQ(request.artefact(), data);
    }
  }
}

}  // namespace
}  // namespace kvcompress
