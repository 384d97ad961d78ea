// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>

#include "kvcompress/codec.h"
#include "kvcompress/error.h"

namespace kvcompress {
namespace {

TEST(Registry, ResolvesChoicesToTheirCanonicalText) {
  EXPECT_EQ(ResolveCodec({})->ToString(), "int4:64");
  EXPECT_EQ(ResolveCodec({.name = "int4", .group_size = 128})->ToString(),
            "int4:128");
  EXPECT_EQ(ParseCodecSpec("int4:32")->ToString(), "int4:32");
}

TEST(Registry, RefusesWithTheFieldThatIsWrong) {
  const auto field = [](const CodecChoice& choice) {
    const absl::Status status = ResolveCodec(choice).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return GetErrorDetail(status)->field;
  };
  EXPECT_EQ(field({.name = "int3"}), "options.codec");
  EXPECT_EQ(field({.name = "int4", .group_size = 48}), "options.group_size");
  EXPECT_EQ(field({.name = "int4", .preset = "high"}), "options.preset");
}

TEST(Registry, ReadsOnlyCanonicalText) {
  for (const char* text : {"", "int4", "int4:", "int4:064", "int4:64 ",
                           "int4:48", "INT4:64", "int4:64:", "x:1"}) {
    EXPECT_FALSE(ParseCodecSpec(text).ok()) << text;
  }
}

// Holds for every codec, present and future.
TEST(Registry, EveryCodecIsDescribed) {
  for (const Codec* codec : AllCodecs()) {
    const CodecTraits& traits = codec->traits();
    EXPECT_FALSE(traits.name.empty());
    EXPECT_FALSE(traits.description.empty());
    EXPECT_FALSE(traits.dtypes.empty());
    EXPECT_FALSE(codec->SelfTestChoices().empty());
    for (const CodecChoice& choice : codec->SelfTestChoices()) {
      const auto spec = ResolveCodec(choice);
      ASSERT_TRUE(spec.ok()) << spec.status();
      // What is never stored is not read either.
      EXPECT_EQ(ParseCodecSpec(spec->ToString()).ok(), codec->stored());
    }
  }
}

TEST(Int4, SizeIsExact) {
  const auto size = [](std::vector<uint64_t> shape, const char* group) {
    return *ResolveCodec({})->codec->MaxEncodedSize({.shape = std::move(shape)},
                                                    group);
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
