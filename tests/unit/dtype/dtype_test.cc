// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "kvcompress/dtype.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

namespace kvcompress {
namespace {

// The compiler's own binary16 is the oracle.
uint16_t OracleHalf(float value) {
  return std::bit_cast<uint16_t>(static_cast<_Float16>(value));
}

TEST(DType, NamesAreTheFormatsAndComeBack) {
  for (int i = 0; i <= static_cast<int>(DType::kU64); ++i) {
    const DType dtype = static_cast<DType>(i);
    EXPECT_EQ(DTypeFromName(DTypeName(dtype)), dtype);
  }
  EXPECT_EQ(DTypeName(DType::kBF16), "BF16");
  EXPECT_EQ(DTypeSize(DType::kF64), 8);
  EXPECT_EQ(DTypeFromName("bf16"), std::nullopt);
  EXPECT_EQ(DTypeFromName(""), std::nullopt);
}

TEST(Half, WidensEveryValueExactly) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const _Float16 half = std::bit_cast<_Float16>(static_cast<uint16_t>(bits));
    const float expected = static_cast<float>(half);
    const float actual = HalfToFloat(static_cast<uint16_t>(bits));
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(actual)) << bits;
    } else {
      EXPECT_EQ(std::bit_cast<uint32_t>(actual),
                std::bit_cast<uint32_t>(expected))
          << bits;
    }
  }
}

TEST(Half, RoundsEveryMidpointAndItsNeighboursToNearestEven) {
  for (uint32_t bits = 0; bits < 0x7c00; ++bits) {
    const float low = HalfToFloat(static_cast<uint16_t>(bits));
    const float high = bits + 1 == 0x7c00
                           ? 65536.0f
                           : HalfToFloat(static_cast<uint16_t>(bits + 1));
    const float middle = low + (high - low) / 2;
    for (float value : {low, std::nextafter(middle, 0.0f), middle,
                        std::nextafter(middle, 1e9f)}) {
      EXPECT_EQ(FloatToHalf(value), OracleHalf(value)) << value;
      EXPECT_EQ(FloatToHalf(-value), OracleHalf(-value)) << value;
    }
  }
}

TEST(Half, KeepsTheEndsOfTheRange) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(FloatToHalf(infinity), 0x7c00);
  EXPECT_EQ(FloatToHalf(-infinity), 0xfc00);
  EXPECT_EQ(FloatToHalf(1e30f), 0x7c00);
  EXPECT_EQ(FloatToHalf(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(FloatToHalf(-0.0f), 0x8000);
  EXPECT_TRUE(std::isnan(HalfToFloat(FloatToHalf(NAN))));
  // A NaN whose payload lies in the bits that are dropped stays a NaN.
  EXPECT_TRUE(
      std::isnan(HalfToFloat(FloatToHalf(std::bit_cast<float>(0x7f800001u)))));
}

TEST(BFloat16, RoundsToNearestEven) {
  EXPECT_EQ(FloatToBFloat16(1.0f), 0x3f80);
  EXPECT_EQ(FloatToBFloat16(std::bit_cast<float>(0x3f808000u)), 0x3f80);
  EXPECT_EQ(FloatToBFloat16(std::bit_cast<float>(0x3f808001u)), 0x3f81);
  EXPECT_EQ(FloatToBFloat16(std::bit_cast<float>(0x3f818000u)), 0x3f82);
  EXPECT_EQ(FloatToBFloat16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_TRUE(std::isnan(
      BFloat16ToFloat(FloatToBFloat16(std::bit_cast<float>(0x7f800001u)))));
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = BFloat16ToFloat(static_cast<uint16_t>(bits));
    if (!std::isnan(value)) {
      EXPECT_EQ(FloatToBFloat16(value), bits);
    }
  }
}

}  // namespace
}  // namespace kvcompress
