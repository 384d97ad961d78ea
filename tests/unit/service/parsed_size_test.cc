// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "parsed_size.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kvcompress/error.h"
#include "kvcompress/safetensors.h"
#include "kvcompress/v1/compression_service.pb.h"
#include "request.h"
#include "wire/messages.h"

namespace kvcompress {
namespace {

constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();

// The bytes of a message in pieces of `size`.
grpc::ByteBuffer InPieces(const std::string& bytes, size_t size) {
  std::vector<grpc::Slice> slices;
  for (size_t i = 0; i < bytes.size(); i += size) {
    slices.emplace_back(bytes.substr(i, size));
  }
  return {slices.data(), slices.size()};
}

uint64_t HeapInUse() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

// What a message without limits is said to take, and what it takes; 0 under an
// allocator that does not tell.
template <typename Request>
std::pair<uint64_t, uint64_t> SaidAndTaken(const std::string& bytes) {
  static const auto* const size = new ParsedSize(*Request::descriptor(), {});
  const grpc::ByteBuffer buffer = InPieces(bytes, 8192);
  const absl::StatusOr<ParsedSize::Result> said = size->Of(buffer, kUnlimited);
  EXPECT_TRUE(said.ok()) << said.status();
  if (!said.ok()) return {0, 0};
  {
    // What is made once is not counted.
    Request first;
    EXPECT_TRUE(Parse(buffer, &first));
  }
  const uint64_t before = HeapInUse();
  Request request;
  EXPECT_TRUE(Parse(buffer, &request));
  return {said->bytes, HeapInUse() - before};
}

std::string Field(int number, const std::string& content) {
  std::string field;
  google::protobuf::io::StringOutputStream stream(&field);
  {
    google::protobuf::io::CodedOutputStream out(&stream);
    out.WriteVarint32(static_cast<uint32_t>(number << 3 | 2));
    out.WriteVarint32(static_cast<uint32_t>(content.size()));
    out.WriteString(content);
  }
  return field;
}

std::string Times(int count, const std::string& text) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

absl::Status Refused(const std::string& bytes) {
  return ParsedSizeOf<v1::CompressRequest>()
      .Of(InPieces(bytes, 100), kUnlimited)
      .status();
}

TEST(ParsedSize, IsNeverBelowWhatHostileMessagesTake) {
  constexpr int kCount = 50'000;
  std::string names;
  for (int i = 0; i < kCount; ++i) {
    names += Field(1, Field(1, std::to_string(i)) + "\x10\x01");
  }
  std::string entries;
  for (int i = 0; i < kCount; ++i) {
    entries += Field(2, Field(1, std::to_string(i)));
  }
  const std::string unknown_group = "\x7b\x7c";  // 15, of no fields
  for (const std::string& message :
       {Field(3, Times(kCount, Field(1, ""))),   // specs
        Field(3, names), Field(3, entries),      //
        Field(3, Times(kCount, Field(2, ""))),   // one entry
        Field(1, Times(kCount, Field(14, ""))),  // attention
        Field(1, Field(14, Field(2, std::string(kCount * 4, 0)))),
        Field(1, Field(14, Times(kCount, "\x15" + std::string(4, 0)))),
        Field(3, Field(1, Field(3, std::string(kCount, 1)))),
        Field(3, Field(1, Times(kCount, "\x18\x01"))),  // shape, unpacked
        Times(kCount, unknown_group), Times(kCount, "\x78\x01"),
        Times(kCount, Field(15, "")),
        Times(kCount, Field(15, "0123456789abcdef")),
        Field(3, Times(kCount, Field(1, unknown_group))),
        Field(1, Times(kCount, Field(4, Field(15, "")))),  // thresholds
        Field(2, std::string(1 << 20, 'x')),
        Field(4, Field(1, std::string(1 << 20, 'x')))}) {
    const auto [said, taken] = SaidAndTaken<v1::CompressRequest>(message);
    EXPECT_GE(said, taken) << message.substr(0, 16);
  }
  const auto [said, taken] = SaidAndTaken<v1::DecompressRequest>(
      Field(1, Times(kCount, Field(3, ""))));
  EXPECT_GE(said, taken);
}

TEST(ParsedSize, IsCloseForHonestMessages) {
  v1::CompressRequest table;
  for (int layer = 0; layer < 80; ++layer) {
    for (const char* const role : {"_key", "_value"}) {
      v1::TensorSpec& spec = *table.mutable_tensors()->add_tensors();
      spec.set_name("layer_" + std::to_string(layer) + role);
      spec.set_dtype(v1::DATA_TYPE_BF16);
      for (const uint64_t size : {1, 8, 4096, 128}) spec.add_shape(size);
    }
  }
  v1::CompressRequest attention;
  v1::CompressOptions& options = *attention.mutable_options();
  for (int layer = 0; layer < 32; ++layer) {
    v1::LayerAttention& each = *options.add_attention();
    each.set_layer(layer);
    for (int token = 0; token < 4096; ++token) each.add_octaves(1);
  }
  (*options.mutable_labels())["model"] = "a model of thirty-two layers";
  v1::CompressRequest chunk;
  chunk.mutable_tensor_data()->set_data(std::string(1 << 20, 'x'));
  for (const v1::CompressRequest* const request :
       {&table, &attention, &chunk}) {
    const auto [said, taken] =
        SaidAndTaken<v1::CompressRequest>(request->SerializeAsString());
    EXPECT_GE(said, taken);
    EXPECT_LE(said, 4 * request->SpaceUsedLong());
  }
}

TEST(ParsedSize, IsNeverBelowAndRefusesNoMessageHoweverItIsChanged) {
  std::mt19937 random(20261123);  // NOLINT(bugprone-random-generator-seed)
  v1::CompressRequest request;
  v1::CompressOptions& options = *request.mutable_options();
  options.set_codec("int4");
  options.mutable_thresholds()->set_max_error(1);
  (*options.mutable_labels())["a"] = "b";
  options.add_attention()->add_octaves(2);
  v1::CompressRequest table;
  table.mutable_tensors()->add_tensors()->add_shape(300);
  (*table.mutable_tensors()->mutable_metadata())["k"] = "v";
  static const auto* const size =
      new ParsedSize(*v1::CompressRequest::descriptor(), {});
  int parsed = 0;
  for (int i = 0; i < 200'000; ++i) {
    std::string bytes = (i % 2 == 0 ? request : table).SerializeAsString();
    if (i % 3 == 0) bytes += bytes;
    for (uint32_t change = random() % 4; change > 0; --change) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    const grpc::ByteBuffer buffer = InPieces(bytes, 1 + random() % 40);
    const absl::StatusOr<ParsedSize::Result> said =
        size->Of(buffer, kUnlimited);
    if (!said.ok()) continue;
    const uint64_t before = HeapInUse();
    v1::CompressRequest read;
    if (!Parse(buffer, &read)) continue;
    ++parsed;
    EXPECT_GE(said->bytes, HeapInUse() - before);
  }
  EXPECT_GT(parsed, 20'000);
}

TEST(ParsedSize, RefusesWhatIsNoMessage) {
  for (const std::string& bytes :
       {std::string("\x0a\x05"), std::string("\x0a"), std::string(1, '\0'),
        std::string("\x0c"), std::string("\x0b"), std::string("\x0f"),
        std::string("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
        std::string("\x78\xff"), std::string("\x79\x01"),
        Times(200, "\x7b") + Times(200, "\x7c"),  // groups in groups
        Field(1, "\x7b"), Field(3, "\x0a\x05")}) {
    const absl::Status status = Refused(bytes);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_EQ(GetErrorDetail(status)->reason, "INVALID_MESSAGE");
  }
  EXPECT_EQ(Refused(Times(100, "\x7b") + Times(100, "\x7c")), absl::OkStatus());
}

TEST(ParsedSize, NamesTheStringThatIsNotUtf8) {
  const absl::Status status = Refused(Field(1, Field(1, "\xff\xfe")));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("kvcompress.v1.CompressOptions.codec"),
            std::string::npos);
}

TEST(ParsedSize, RefusesMoreThanTheLimits) {
  const std::string spec = Field(1, "");
  EXPECT_EQ(Refused(Field(3, Times(kMaxTensors, spec))), absl::OkStatus());
  const absl::Status tensors = Refused(Field(3, Times(kMaxTensors + 1, spec)));
  EXPECT_EQ(GetErrorDetail(tensors)->reason, "TOO_MANY_TENSORS");
  EXPECT_EQ(GetErrorDetail(tensors)->limit, kMaxTensors);
  const absl::Status metadata =
      Refused(Field(3, Times(kMaxMetadata + 1, Field(2, ""))));
  EXPECT_EQ(GetErrorDetail(metadata)->reason, "TOO_MUCH_METADATA");
  const absl::Status layers =
      Refused(Field(1, Times(kMaxAttentionLayers + 1, Field(14, ""))));
  EXPECT_EQ(GetErrorDetail(layers)->reason, "INVALID_ATTENTION");
  const std::string values =
      Field(14, Field(2, std::string(kMaxAttentionValues * 2, '\0')));
  EXPECT_EQ(Refused(Field(1, Times(2, values))), absl::OkStatus());
  EXPECT_EQ(GetErrorDetail(Refused(Field(1, Times(3, values))))->reason,
            "INVALID_ATTENTION");
}

TEST(ParsedSize, LooksNoFurtherThanItHasTo) {
  // What comes later is no message.
  const std::string bytes = Times(1000, Field(15, "")) + "\xff";
  const absl::StatusOr<ParsedSize::Result> result =
      ParsedSizeOf<v1::CompressRequest>().Of(InPieces(bytes, 64), 10'000);
  ASSERT_TRUE(result.ok());
  EXPECT_GT(result->bytes, 10'000);
}

}  // namespace
}  // namespace kvcompress
