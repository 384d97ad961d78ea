// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "profile/residuals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/elements.h"

namespace kvcompress::profile {
namespace {

using ::testing::HasSubstr;

constexpr DType kTypes[] = {DType::kBF16, DType::kF16};

ResidualShape ShapeOf(DType dtype, uint64_t heads, uint64_t tokens,
                      uint64_t channels) {
  return {.dtype = dtype,
          .batches = 1,
          .heads = heads,
          .tokens = tokens,
          .channels = channels};
}

std::string BytesOf(const std::vector<uint16_t>& elements) {
  return std::string(reinterpret_cast<const char*>(elements.data()),
                     2 * elements.size());
}

std::string BytesOf(DType dtype, const std::vector<float>& values) {
  std::string bytes(2 * values.size(), '\0');
  StoreElements(dtype, values, reinterpret_cast<uint8_t*>(bytes.data()));
  return bytes;
}

absl::StatusOr<std::string> Applied(const ResidualShape& shape,
                                    absl::string_view bytes,
                                    std::string restored) {
  const auto residuals = Residuals::Parse(bytes, shape, /*checkpoint=*/nullptr);
  if (!residuals.ok()) return residuals.status();
  ResidualReader reader;
  const size_t row = 2 * shape.channels;
  for (uint64_t head = 0; head < shape.batches * shape.heads; ++head) {
    for (uint64_t block = 0; block < shape.blocks_of_head(); ++block) {
      const size_t begin =
          (head * shape.tokens + block * shape.block_tokens()) * row;
      const absl::Status status =
          reader.Apply(*residuals, head, block,
                       reinterpret_cast<uint8_t*>(&restored[begin]));
      if (!status.ok()) return status;
    }
  }
  return restored;
}

std::string Encoded(const ResidualShape& shape, const std::string& source,
                    const std::string& restored) {
  return EncodeResiduals(shape, source, restored, /*checkpoint=*/nullptr);
}

// Values of a standard deviation, and what is left of them with an error.
struct Noisy {
  std::string source;
  std::string restored;
};
Noisy NoisyOf(const ResidualShape& shape, float deviation, float error) {
  std::mt19937 engine(3);
  std::normal_distribution<float> normal;
  std::vector<float> source(shape.heads * shape.tokens * shape.channels);
  std::vector<float> restored(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    source[i] = deviation * normal(engine);
    restored[i] = source[i] + error * normal(engine);
  }
  return {BytesOf(shape.dtype, source), BytesOf(shape.dtype, restored)};
}

TEST(Residuals, EveryBitPatternComesBackWhateverWasRestored) {
  for (const DType dtype : kTypes) {
    const ResidualShape shape = ShapeOf(dtype, 1, 1024, 64);
    std::vector<uint16_t> source(1 << 16);
    for (size_t i = 0; i < source.size(); ++i) {
      source[i] = static_cast<uint16_t>(i * 40503);  // each once
    }
    // Errors from nothing to more than the type holds set other floors.
    for (int exponent = -150; exponent <= 130; exponent += 7) {
      std::vector<float> values(source.size());
      LoadElements(dtype, reinterpret_cast<const uint8_t*>(source.data()),
                   absl::MakeSpan(values));
      for (float& value : values) {
        value = std::isfinite(value) ? value + std::ldexp(1.0f, exponent) : 0;
      }
      const std::string restored = BytesOf(dtype, values);
      const auto found =
          Applied(shape, Encoded(shape, BytesOf(source), restored), restored);
      ASSERT_TRUE(found.ok()) << found.status() << " " << exponent;
      ASSERT_EQ(*found, BytesOf(source)) << exponent;
    }
  }
}

TEST(Residuals, TakeFewBitsMoreThanTheErrorsHave) {
  // Of normal values with errors of 1/16, an ideal code of BF16 takes 6.76
  // bits: the entropy of the error over the steps of the type.
  const ResidualShape shape = ShapeOf(DType::kBF16, 3, 1500, 64);
  const Noisy noisy = NoisyOf(shape, 1, 1.0f / 16);
  const std::string bytes = Encoded(shape, noisy.source, noisy.restored);
  const double bits = 8 * static_cast<double>(bytes.size()) /
                      static_cast<double>(noisy.source.size() / 2);
  EXPECT_LT(bits, 7.1);
  EXPECT_EQ(*Applied(shape, bytes, noisy.restored), noisy.source);
}

TEST(Residuals, NothingIsLargerThanItsElements) {
  for (const DType dtype : kTypes) {
    for (const uint64_t channels : {1, 7, 80, 4096}) {
      const ResidualShape shape = ShapeOf(dtype, 2, 33, channels);
      std::mt19937 engine(5);
      std::vector<uint16_t> source(2 * 33 * channels);
      std::vector<uint16_t> restored(source.size());
      for (uint16_t& bits : source) bits = static_cast<uint16_t>(engine());
      for (uint16_t& bits : restored) bits = static_cast<uint16_t>(engine());
      const std::string bytes =
          Encoded(shape, BytesOf(source), BytesOf(restored));
      EXPECT_LE(bytes.size(), Residuals::Memory(shape));
      const auto found = Applied(shape, bytes, BytesOf(restored));
      ASSERT_TRUE(found.ok()) << found.status();
      EXPECT_EQ(*found, BytesOf(source));
    }
  }
}

TEST(Residuals, DamageIsRefusedOrGivesOtherElements) {
  const ResidualShape shape = ShapeOf(DType::kBF16, 1, 3, 48);
  const Noisy noisy = NoisyOf(shape, 1, 0.1f);
  std::string bytes = Encoded(shape, noisy.source, noisy.restored);
  size_t refused = 0;
  for (size_t i = 0; i < 8 * bytes.size(); ++i) {
    char& byte = bytes[i / 8];
    byte = static_cast<char>(byte ^ 1 << i % 8);
    const auto found = Applied(shape, bytes, noisy.restored);
    byte = static_cast<char>(byte ^ 1 << i % 8);
    if (found.ok()) continue;
    EXPECT_EQ(found.status().code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(found.status().message()), HasSubstr("residuals"));
    ++refused;
  }
  EXPECT_GT(refused, bytes.size());
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(
        Applied(shape, absl::string_view(bytes).substr(0, size), noisy.restored)
            .ok());
  }
  EXPECT_THAT(
      std::string(
          Applied(shape, bytes + "x", noisy.restored).status().message()),
      HasSubstr("bytes behind their end"));
}

TEST(Residuals, WhatFollowsAnIndexOfZeroHasIt) {
  const ResidualShape shape = ShapeOf(DType::kBF16, 1, 1024, 1);
  Noisy noisy = NoisyOf(shape, 1, 0.1f);
  noisy.source.replace(noisy.source.size() - 2, 2, std::string("\x01\x00", 2));
  std::string bytes = Encoded(shape, noisy.source, noisy.restored);
  ASSERT_EQ(*Applied(shape, bytes, noisy.restored), noisy.source);
  // The last element as it is, which becomes NaN.
  bytes.replace(bytes.size() - 2, 2, "\xff\xff");
  EXPECT_THAT(
      std::string(Applied(shape, bytes, noisy.restored).status().message()),
      HasSubstr("a difference to no element"));
}

}  // namespace
}  // namespace kvcompress::profile
