// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kvcompress/codec.h"
#include "kvcompress/dtype.h"
#include "kvcompress/error.h"
#include "support/decoding.h"

namespace kvcompress {
namespace {

constexpr size_t kChunk = 128 << 10;

TensorSpec Spec(uint64_t elements) {
  return {.name = "t", .dtype = DType::kF16, .shape = {elements}};
}

CodecSpec StagedCodec(const char* stage, const char* name = "int8") {
  return *ParseCodec(CodecString(name, "", stage));
}

std::string Encode(const CodecSpec& codec, const std::string& source) {
  auto encoder = codec.codec->NewEncoder(Spec(source.size() / 2),
                                         codec.parameters, EncodeHints());
  std::string payload;
  EXPECT_EQ((*encoder)->Append(source, &payload, nullptr), absl::OkStatus());
  EXPECT_EQ((*encoder)->Finish(&payload, nullptr), absl::OkStatus());
  return payload;
}

absl::Status Decode(const CodecSpec& codec, uint64_t elements,
                    const std::string& payload) {
  auto decoder = codec.codec->NewDecoder(Spec(elements), codec.parameters);
  std::string decoded;
  return testing::DecodeAll(**decoder, payload, &decoded);
}

uint32_t Number(const std::string& payload, size_t position) {
  uint32_t number;
  std::memcpy(&number, payload.data() + position, sizeof(number));
  return number;
}

std::string WithNumber(std::string payload, size_t position, uint32_t number) {
  std::memcpy(payload.data() + position, &number, sizeof(number));
  return payload;
}

// Halves that are spread evenly over an interval, and so are their codes.
std::string Noise(size_t elements) {
  std::string bytes;
  std::mt19937 random(1);
  for (size_t i = 0; i < elements; ++i) {
    const float value = static_cast<float>(random()) * 0x1p-31f - 1;
    const uint16_t bits = FloatToHalf(value);
    bytes.append(reinterpret_cast<const char*>(&bits), sizeof(bits));
  }
  return bytes;
}

class LastStageTest : public ::testing::TestWithParam<const char*> {};

TEST_P(LastStageTest, ZerosTakeAQuarter) {
  const std::string zeros(2 * 300000, '\0');
  const std::string payload = Encode(StagedCodec(GetParam()), zeros);
  const size_t inner = 300000 + 2 * (300000 / 64 + 1);
  EXPECT_EQ(Number(payload, 0), kChunk);
  EXPECT_LT(Number(payload, 4), kChunk / 4);
  EXPECT_EQ(payload.size(), 3 * 8 + 2 * kChunk / 4 + (inner % kChunk + 3) / 4);
  EXPECT_EQ(Decode(StagedCodec(GetParam()), 300000, payload), absl::OkStatus());
}

TEST_P(LastStageTest, NoiseStaysAsItIs) {
  const std::string payload = Encode(StagedCodec(GetParam()), Noise(1000));
  const size_t inner = 1000 + 2 * 16;
  EXPECT_EQ(payload.size(), 8 + inner);
  EXPECT_EQ(Number(payload, 0), inner);
  EXPECT_EQ(Number(payload, 4), inner);
}

TEST_P(LastStageTest, AnEmptyTensorHasNoChunks) {
  EXPECT_EQ(Encode(StagedCodec(GetParam()), ""), "");
  EXPECT_EQ(Decode(StagedCodec(GetParam()), 0, ""), absl::OkStatus());
}

TEST_P(LastStageTest, DamageIsFoundWithoutADigest) {
  const CodecSpec codec = StagedCodec(GetParam());
  const std::string good = Encode(codec, std::string(2 * 4096, '\0'));
  ASSERT_EQ(Decode(codec, 4096, good), absl::OkStatus());
  const uint32_t size = Number(good, 0);
  const uint32_t compressed = Number(good, 4);
  std::string padding = good;
  padding.back() = 1;
  std::string content = good;
  content[8 + compressed / 2] ^= 0x55;
  const std::vector<std::string> damaged = {
      "",
      good.substr(0, 7),
      good.substr(0, good.size() - 1),
      good + good,
      WithNumber(good, 0, 0),
      WithNumber(good, 0, kChunk + 1),
      WithNumber(good, 0, 0xffffffff),
      WithNumber(good, 0, size - 1),
      WithNumber(good, 4, 0),
      WithNumber(good, 4, size + 1),
      WithNumber(good, 4, compressed - 1),
      WithNumber(good, 4, compressed + 1),
      padding,
      content,
  };
  for (size_t i = 0; i < damaged.size(); ++i) {
    const absl::Status status = Decode(codec, 4096, damaged[i]);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << i;
  }
  EXPECT_THAT(std::string(Decode(codec, 4096, content).message()),
              ::testing::StartsWith("chunk 0: "));
}

TEST_P(LastStageTest, AutoRecordsWhatItChoseWithTheStage) {
  const CodecSpec codec = StagedCodec(GetParam(), "auto");
  auto encoder = codec.codec->NewEncoder(Spec(1000), codec.parameters, {});
  std::string payload;
  ASSERT_EQ((*encoder)->Append(Noise(1000), &payload, nullptr),
            absl::OkStatus());
  ASSERT_EQ((*encoder)->Finish(&payload, nullptr), absl::OkStatus());
  ASSERT_NE((*encoder)->chosen(), nullptr);
  const std::string field = (*encoder)->chosen()->ManifestField();
  EXPECT_THAT(field, ::testing::HasSubstr(std::string("+") + GetParam()));
  EXPECT_LE(field.size(), codec.codec->MaxFieldSize(CodecParameters()));
  const absl::StatusOr<CodecSpec> read = ParseManifestField(field);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(Decode(*read, 1000, payload), absl::OkStatus());
}

INSTANTIATE_TEST_SUITE_P(Stages, LastStageTest,
                         ::testing::Values("lz4", "zstd"));

TEST(LastStageNamesTest, AreNoCodecsOfTheirOwn) {
  EXPECT_FALSE(ParseCodec("int4+zstd:64").ok());
  EXPECT_FALSE(ParseManifestField("int4:64+zstd").ok());
  EXPECT_FALSE(ParseManifestField("int4+gzip:64").ok());
  EXPECT_FALSE(ParseManifestField("auto+zstd").ok());
  EXPECT_FALSE(ParseManifestField("int4+zstd+lz4:64").ok());
  const absl::StatusOr<CodecSpec> staged = ParseManifestField("int4+zstd:64");
  ASSERT_TRUE(staged.ok());
  EXPECT_EQ(staged->codec->base().traits().name, "int4");
  const absl::Status unknown = ParseCodec("int4+gzip").status();
  EXPECT_EQ(GetErrorDetail(unknown)->reason, "UNKNOWN_BYTE_COMPRESSOR");
}

}  // namespace
}  // namespace kvcompress
