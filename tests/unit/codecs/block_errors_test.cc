// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// What is wrong with a block of a codec, and where: the errors of decoders say.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kvcompress/codec.h"
#include "kvcompress/dtype.h"
#include "support/decoding.h"

namespace kvcompress {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// The error for a payload of zeros in which one byte is another.
std::string ErrorFor(const char* codec, std::vector<uint64_t> shape,
                     size_t position, char byte) {
  const CodecSpec parsed = *ParseCodec(codec);
  const TensorSpec spec = {.name = "t",
                           .dtype = DType::kF32,
                           .shape = std::move(shape),
                           .role = TensorRole::kKey};
  std::string payload(*parsed.codec->MaxEncodedSize(spec, parsed.parameters),
                      '\0');
  payload.at(position) = byte;
  const auto decoder = parsed.codec->NewDecoder(spec, parsed.parameters);
  std::string decoded;
  const absl::Status status = testing::DecodeAll(**decoder, payload, &decoded);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << codec;
  return std::string(status.message());
}

TEST(BlockErrors, SayWhichRuleABlockBreaksAndWhere) {
  constexpr size_t kInt4Block = 128 + 2048;
  EXPECT_THAT(
      ErrorFor("int4:64", {4096 + 1}, kInt4Block + 1, '\x80'),
      HasSubstr("the int4 block of element 4096: a scale is negative or not "
                "finite, or the unused half of the last byte is not zero"));
  EXPECT_THAT(
      ErrorFor("int8:64", {4097}, 1, '\x7c'),
      HasSubstr(
          "the int8 block of element 0: a scale is negative or not finite"));
  EXPECT_THAT(
      ErrorFor("int4-kivi:64", {3}, 2, 1),
      HasSubstr("the int4-kivi block of element 0: group 0 has no step, but a "
                "zero point or codes"));
}

TEST(BlockErrors, SparseCountsWhatItsBitmapKeeps) {
  EXPECT_THAT(ErrorFor("sparse:0.5,64", {4096}, 0, 1),
              HasSubstr("block of element 0: the bitmap does not keep 2048"));
  EXPECT_THAT(ErrorFor("sparse:0.5,64", {4096}, 512 + 2 * 9 + 1, '\x7c'),
              HasSubstr("the scale of group 9 is negative or not finite"));
  EXPECT_THAT(ErrorFor("sparse:0.5,64", {4096}, 512 + 2 * 9, 1),
              HasSubstr("group 9 has a scale, and none of its elements"));
  EXPECT_THAT(ErrorFor("sparse:0.5,64", {4}, 0, 16),
              HasSubstr("the bitmap goes on after the last element"));
}

// The errors of a payload in which one byte after the other is another.
std::set<std::string> ErrorsOfChangedBytes(const char* codec) {
  const TensorSpec spec = {.name = "t",
                           .dtype = DType::kF32,
                           .shape = {1, 2, 160, 40},
                           .role = TensorRole::kKey};
  const CodecSpec parsed = *ParseCodec(codec);
  // Channels of both heads follow one signal. Some values are far from the
  // others, and become escapes.
  constexpr size_t kTokens = 160;
  constexpr size_t kChannels = 40;
  std::mt19937 random(3);
  const auto number = [&] {
    return static_cast<float>(random()) * 0x1p-31f - 1;
  };
  std::vector<float> signal(kTokens);
  for (float& each : signal) each = 4 * number();
  std::string source;
  for (size_t i = 0; i < 2 * kTokens * kChannels; ++i) {
    const float value = signal[i / kChannels % kTokens] + 0.2f * number();
    AppendElement(spec.dtype, i % 997 == 5 ? 90 * value : value, &source);
  }
  auto encoder = parsed.codec->NewEncoder(spec, parsed.parameters, {});
  std::string payload;
  EXPECT_TRUE((*encoder)->Append(source, &payload, nullptr).ok());
  EXPECT_TRUE((*encoder)->Finish(&payload, nullptr).ok());
  std::set<std::string> errors;
  for (size_t i = 0; i < payload.size(); ++i) {
    std::string changed = payload;
    changed[i] = static_cast<char>(changed[i] ^ 0xd5);
    const auto decoder = parsed.codec->NewDecoder(spec, parsed.parameters);
    std::string decoded;
    const absl::Status status =
        testing::DecodeAll(**decoder, changed, &decoded);
    if (!status.ok()) errors.emplace(status.message());
  }
  return errors;
}

TEST(BlockErrors, EntropyCodersSayTheFieldAndTheToken) {
  const std::set<std::string> ecsq = ErrorsOfChangedBytes("ecsq:high");
  const std::set<std::string> klt = ErrorsOfChangedBytes("klt:high");
  for (const std::set<std::string>& errors : {ecsq, klt}) {
    EXPECT_THAT(errors, Contains(AllOf(StartsWith("block 0 of "),
                                       HasSubstr("the words do not end"))));
    EXPECT_THAT(errors,
                Contains(HasSubstr("a state of the entropy coder is out of")));
  }
  EXPECT_THAT(
      ecsq, Contains(AllOf(HasSubstr("the strip of channels from "),
                           HasSubstr("the list of escapes has no valid one for "
                                     "token "))));
  EXPECT_THAT(klt, Contains(AllOf(HasSubstr("the strip of components from "),
                                  HasSubstr(" on: "))));
}

}  // namespace
}  // namespace kvcompress
