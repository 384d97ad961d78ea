// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>

#include "kvcompress/codec.h"
#include "kvcompress/error.h"

namespace kvcompress {
namespace {

TEST(Registry, ReadsCodecStringsIntoTheirCanonicalText) {
  EXPECT_EQ(ParseCodec("int4")->ToString(), "int4:64");
  EXPECT_EQ(ParseCodec("int4:128")->ToString(), "int4:128");
  EXPECT_EQ(ParseManifestField("int4:32")->ToString(), "int4:32");
  EXPECT_EQ(ParseManifestField("int4+zstd:32")->ToString(), "int4:32+zstd");
}

TEST(Registry, RefusesWithTheFieldThatIsWrong) {
  const auto reason = [](absl::string_view text) {
    const absl::Status status = ParseCodec(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(GetErrorDetail(status)->field, "options.codec");
    return GetErrorDetail(status)->reason;
  };
  EXPECT_EQ(reason("int3"), "UNKNOWN_CODEC");
  EXPECT_EQ(reason("int4:48"), "INVALID_CODEC_OPTION");
  EXPECT_EQ(reason("int4:high"), "INVALID_CODEC_OPTION");
  EXPECT_EQ(reason("int4+gzip"), "UNKNOWN_BYTE_COMPRESSOR");
}

TEST(Registry, ReadsOnlyCanonicalText) {
  for (const char* text : {"", "int4", "int4:", "int4:064", "int4:64 ",
                           "int4:48", "INT4:64", "int4:64:", "x:1"}) {
    EXPECT_FALSE(ParseManifestField(text).ok()) << text;
  }
}

// Holds for every codec, present and future.
TEST(Registry, EveryCodecIsDescribed) {
  for (const Codec* codec : AllCodecs()) {
    const CodecTraits& traits = codec->traits();
    EXPECT_FALSE(traits.name.empty());
    EXPECT_FALSE(traits.description.empty());
    EXPECT_FALSE(traits.dtypes.empty());
    EXPECT_FALSE(codec->SelfTestParameters().empty());
    for (const CodecOption& option : traits.options) {
      EXPECT_FALSE(option.name.empty());
      EXPECT_FALSE(option.description.empty()) << option.name;
      EXPECT_TRUE(option.default_value || !option.always_written ||
                  option.required)
          << option.name;
    }
    for (const std::string& text : codec->SelfTestParameters()) {
      const auto parameters = codec->Parse(text);
      ASSERT_TRUE(parameters.ok()) << parameters.status();
      // What is never stored is not read either.
      const CodecSpec spec = {codec, *parameters};
      EXPECT_EQ(ParseManifestField(spec.ManifestField()).ok(), codec->stored());
    }
  }
}

TEST(Int4, SizeIsExact) {
  const auto size = [](std::vector<uint64_t> shape, const char* group) {
    const CodecSpec spec = *ParseCodec(CodecString("int4", group));
    return *spec.codec->MaxEncodedSize({.shape = std::move(shape)},
                                       spec.parameters);
  };
  EXPECT_EQ(size({0}, "64"), 0);
  EXPECT_EQ(size({}, "64"), 3);
  EXPECT_EQ(size({64}, "64"), 34);
  EXPECT_EQ(size({65}, "64"), 37);
  EXPECT_EQ(size({1, 3, 96, 64}, "64"), 9792);
  EXPECT_EQ(size({1, 3, 96, 64}, "128"), 9504);
}

}  // namespace
}  // namespace kvcompress
