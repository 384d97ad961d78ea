// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Blocks that are not needed are not decoded, and the others come out as ever.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "kvcompress/codec.h"
#include "support/decoding.h"

namespace kvcompress {
namespace {

TensorSpec Spec() {
  TensorSpec spec = {
      .name = "layer_0_key", .dtype = DType::kF32, .shape = {1, 2, 3000, 64}};
  InferRole(&spec);
  return spec;
}

std::string Source() {
  std::string bytes;
  for (int i = 0; i < 2 * 3000 * 64; ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(
        static_cast<float>(std::sin(0.37 * i) + 1.5 + i % 7));
    bytes.append(reinterpret_cast<const char*>(&bits), sizeof(bits));
  }
  return bytes;
}

std::string Decode(const CodecSpec& codec, const std::string& payload,
                   TensorDecoder::Needed needed) {
  auto decoder = codec.codec->NewDecoder(Spec(), codec.parameters);
  EXPECT_TRUE(decoder.ok()) << decoder.status();
  (*decoder)->set_needed(std::move(needed));
  std::string decoded;
  EXPECT_EQ(testing::DecodeAll(**decoder, payload, &decoded), absl::OkStatus());
  return decoded;
}

class NeededTest : public ::testing::TestWithParam<std::string> {};

TEST_P(NeededTest, OnlyBlocksWithNeededElementsAreDecoded) {
  for (const char* compressor : {"", "zstd"}) {
    const absl::StatusOr<CodecSpec> codec =
        ParseCodec(CodecString(GetParam(), "", compressor));
    ASSERT_TRUE(codec.ok()) << codec.status();
    auto encoder = codec->codec->NewEncoder(Spec(), codec->parameters, {});
    ASSERT_TRUE(encoder.ok()) << encoder.status();
    std::string payload;
    ASSERT_EQ((*encoder)->Append(Source(), &payload, nullptr),
              absl::OkStatus());
    ASSERT_EQ((*encoder)->Finish(&payload, nullptr), absl::OkStatus());

    const std::string all = Decode(*codec, payload, nullptr);
    ASSERT_EQ(all.size(), Source().size());
    const std::string nothing =
        Decode(*codec, payload, [](uint64_t, uint64_t) { return false; });
    EXPECT_EQ(nothing, std::string(all.size(), '\0'));

    // Tokens 2900 to 2910 of the first head.
    const uint64_t first = 2900 * 64;
    const uint64_t last = 2910 * 64;
    const std::string some =
        Decode(*codec, payload, [&](uint64_t begin, uint64_t end) {
          return begin < last && first < end;
        });
    EXPECT_EQ(some.substr(4 * first, 4 * (last - first)),
              all.substr(4 * first, 4 * (last - first)));
    EXPECT_EQ(some.substr(0, 4 * 64), std::string(4 * 64, '\0'));
    EXPECT_EQ(some.substr(some.size() - 256), std::string(256, '\0'));
  }
}

// Those that are stored; blocks that hold all heads are needed for any of them.
std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const Codec* codec : AllCodecs()) {
    const CodecTraits& traits = codec->traits();
    if (codec->stored() && !traits.couples_heads) names.push_back(traits.name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Codecs, NeededTest, ::testing::ValuesIn(Names()),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

}  // namespace
}  // namespace kvcompress
