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
  for (const DType dtype : AllDTypes()) {
    EXPECT_EQ(DTypeFromName(DTypeName(dtype)), dtype);
  }
  for (const DType dtype : NumberDTypes()) EXPECT_TRUE(IsNumber(dtype));
  EXPECT_EQ(NumberDTypes().size(), 6);
  EXPECT_EQ(AllDTypes().size(), 19);
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

// A format of 8 bits by its definition, and rounding by search: slow and plain.
struct Float8 {
  int mantissa, bias, largest;
  float (*to_float)(uint8_t);
  uint8_t (*from_float)(float);

  double Magnitude(int code) const {
    const int exponent = code >> mantissa;
    const double fraction = std::ldexp(code & ((1 << mantissa) - 1), -mantissa);
    return exponent == 0 ? std::ldexp(fraction, 1 - bias)
                         : std::ldexp(1 + fraction, exponent - bias);
  }
  // Nearest, between equals the even one.
  int Nearest(double magnitude) const {
    int best = 0;
    for (int code = 1; code <= largest; ++code) {
      const double error = std::abs(Magnitude(code) - magnitude);
      const double least = std::abs(Magnitude(best) - magnitude);
      if (error < least || (error == least && code % 2 == 0)) best = code;
    }
    return best;
  }
};
constexpr Float8 kFloat8s[] = {
    {3, 7, 0x7e, F8E4M3ToFloat, FloatToF8E4M3},
    {2, 15, 0x7b, F8E5M2ToFloat, FloatToF8E5M2},
};

TEST(Float8, WidensEveryValueExactlyAndBack) {
  for (const Float8& type : kFloat8s) {
    for (int code = 0; code < 256; ++code) {
      const uint8_t bits = static_cast<uint8_t>(code);
      const float value = type.to_float(bits);
      EXPECT_EQ(std::signbit(value), code >= 128) << code;
      if ((code & 0x7f) > type.largest) {
        const bool infinite = type.mantissa == 2 && (code & 0x7f) == 0x7c;
        EXPECT_EQ(std::isinf(value), infinite) << code;
        EXPECT_EQ(std::isnan(value), !infinite) << code;
        continue;
      }
      EXPECT_EQ(std::abs(value), type.Magnitude(code & 0x7f)) << code;
      EXPECT_EQ(type.from_float(value), bits) << code;
    }
  }
  EXPECT_EQ(F8E4M3ToFloat(0x7e), 448);
  EXPECT_EQ(F8E5M2ToFloat(0x7b), 57344);
  EXPECT_EQ(F8E4M3ToFloat(0x01), 0x1p-9f);
  EXPECT_EQ(F8E5M2ToFloat(0x01), 0x1p-16f);
}

TEST(Float8, RoundsEveryMidpointAndItsNeighboursToNearestEven) {
  for (const Float8& type : kFloat8s) {
    for (int code = 0; code < type.largest; ++code) {
      const float low = static_cast<float>(type.Magnitude(code));
      const float high = static_cast<float>(type.Magnitude(code + 1));
      const float middle = low + (high - low) / 2;
      for (float value :
           {low, std::nextafter(low, 1e9f), std::nextafter(middle, 0.0f),
            middle, std::nextafter(middle, 1e9f)}) {
        const int nearest = type.Nearest(double{value});
        EXPECT_EQ(type.from_float(value), nearest) << value;
        EXPECT_EQ(type.from_float(-value), nearest | 0x80) << value;
      }
    }
  }
}

TEST(Float8, SaturatesAndKeepsNaN) {
  for (const Float8& type : kFloat8s) {
    const float largest = static_cast<float>(type.Magnitude(type.largest));
    for (float value : {largest, std::nextafter(largest, 1e9f), 2 * largest,
                        std::numeric_limits<float>::max(),
                        std::numeric_limits<float>::infinity()}) {
      EXPECT_EQ(type.from_float(value), type.largest) << value;
      EXPECT_EQ(type.from_float(-value), type.largest | 0x80) << value;
    }
    EXPECT_TRUE(std::isnan(type.to_float(type.from_float(NAN))));
    EXPECT_EQ(type.from_float(std::numeric_limits<float>::denorm_min()), 0);
    EXPECT_EQ(type.from_float(-0.0f), 0x80);
  }
}

TEST(DType, AppendsElementsLittleEndian) {
  std::string bytes;
  for (const DType dtype : NumberDTypes()) AppendElement(dtype, -1.5f, &bytes);
  EXPECT_EQ(bytes, std::string("\x00\x00\xc0\xbf"
                               "\x00\xbe"
                               "\xc0\xbf"
                               "\xbc"
                               "\xbe"
                               "\x00\x00\x00\x00\x00\x00\xf8\xbf",
                               18));
}

}  // namespace
}  // namespace kvcompress
