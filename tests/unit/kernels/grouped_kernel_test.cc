// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Exact answers on small shapes. Later sets of kernels run the same body.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/kernels.h"
#include "support/safetensors_file.h"

namespace kvcompress::kernels {
namespace {

struct Encoded {
  EncodeFault fault;
  std::vector<uint8_t> payload;
  std::vector<float> decoded;
  DistortionSums sums;
};

Encoded Encode(const std::vector<float>& values, size_t group = 32) {
  Encoded out;
  const std::string bytes = testing::F32Bytes(values);
  out.payload.resize(BlockSize(4, values.size(), group));
  out.decoded.resize(values.size());
  out.fault = Portable().int4.encode[0](
      reinterpret_cast<const uint8_t*>(bytes.data()),
      {.count = values.size(), .group = group}, out.payload.data(),
      reinterpret_cast<uint8_t*>(out.decoded.data()), &out.sums);
  return out;
}

uint16_t ScaleBits(const Encoded& encoded, size_t group) {
  uint16_t bits;
  std::memcpy(&bits, encoded.payload.data() + 2 * group, sizeof(bits));
  return bits;
}

TEST(Int4Kernel, IntegersUpToSevenAreExact) {
  const Encoded out = Encode({7, -7, 3, 0, -1, 1});
  EXPECT_EQ(HalfToFloat(ScaleBits(out, 0)), 1.0f);
  // Halves of the group share a byte: 7|0, -7|-1, 3|1.
  EXPECT_EQ(out.payload, (std::vector<uint8_t>{0x00, 0x3c, 0x07, 0xf9, 0x13}));
  EXPECT_EQ(out.decoded, (std::vector<float>{7, -7, 3, 0, -1, 1}));
  EXPECT_EQ(out.sums.sum_e2, 0);
  EXPECT_EQ(out.sums.max_abs_x, 7);
}

TEST(Int4Kernel, TiesGoAwayFromZero) {
  const Encoded out = Encode({7, 0.5f, -0.5f, 1.5f, -2.5f, 6.5f});
  EXPECT_EQ(out.decoded, (std::vector<float>{7, 1, -1, 2, -3, 7}));
  // The largest value below a tie: adding 0.5 in binary32 would round it up.
  EXPECT_EQ(Encode({7, std::nextafter(0.5f, 0.0f)}).decoded[1], 0);
}

TEST(Int4Kernel, GroupsHaveTheirOwnScales) {
  std::vector<float> values(40, 7.0f);
  for (size_t i = 32; i < 40; ++i) values[i] = 14.0f;
  const Encoded out = Encode(values);
  EXPECT_EQ(out.payload.size(), 2 * 2 + 20);
  EXPECT_EQ(HalfToFloat(ScaleBits(out, 0)), 1.0f);
  EXPECT_EQ(HalfToFloat(ScaleBits(out, 1)), 2.0f);
  EXPECT_EQ(out.decoded, values);
}

TEST(Int4Kernel, AZeroGroupAndOneTooSmallForTheScaleGiveZeros) {
  const Encoded zero = Encode({0.0f, -0.0f, 0.0f});
  EXPECT_EQ(ScaleBits(zero, 0), 0);
  for (float y : zero.decoded) EXPECT_EQ(std::bit_cast<uint32_t>(y), 0);
  const Encoded tiny = Encode({1e-8f, -1e-8f});
  EXPECT_EQ(ScaleBits(tiny, 0), 0);
  EXPECT_EQ(tiny.decoded, (std::vector<float>{0, 0}));
  EXPECT_EQ(tiny.sums.max_abs_e, static_cast<double>(1e-8f));
}

TEST(Int4Kernel, ASubnormalScaleClamps) {
  // max / 7 = 1.4 * 2^-24 rounds to 2^-24, so the codes would be 9.8.
  const float x = 9.8f * 0x1p-24f;
  const Encoded out = Encode({x, -x});
  EXPECT_EQ(ScaleBits(out, 0), 1);
  EXPECT_EQ(out.decoded, (std::vector<float>{7 * 0x1p-24f, -8 * 0x1p-24f}));
}

TEST(Int4Kernel, RefusesWhatItCannotHold) {
  for (float bad : {NAN, INFINITY, -INFINITY}) {
    const Encoded out = Encode({1, 2, bad, 3});
    EXPECT_EQ(out.fault.kind, EncodeFault::Kind::kNotFinite);
    EXPECT_EQ(out.fault.element, 2);
  }
  // 65,520 is the first quotient that rounds to infinity.
  const float limit = 7 * 65520.0f;
  EXPECT_EQ(Encode({1, limit}).fault.kind, EncodeFault::Kind::kScaleOverflow);
  EXPECT_EQ(Encode({1, limit}).fault.element, 1);
  EXPECT_EQ(Encode({1, std::nextafter(limit, 0.0f)}).fault.kind,
            EncodeFault::Kind::kNone);
}

TEST(Int4Kernel, TheLargestHalfStaysFinite) {
  const uint16_t source[] = {0x7bff, 0xfbff};  // 65,504 and -65,504
  uint8_t payload[BlockSize(4, 2, 32)];
  uint16_t decoded[2];
  DistortionSums sums;
  const KernelSet& set = Portable();
  set.int4.encode[1](reinterpret_cast<const uint8_t*>(source),
                     {.count = 2, .group = 32}, payload,
                     reinterpret_cast<uint8_t*>(decoded), &sums);
  EXPECT_EQ(decoded[0], 0x7bff);
  EXPECT_EQ(decoded[1], 0xfbff);
  uint16_t again[2];
  ASSERT_TRUE(set.int4.decode[1](payload, {.count = 2, .group = 32},
                                 reinterpret_cast<uint8_t*>(again)));
  EXPECT_EQ(again[0], 0x7bff);
}

TEST(Int4Kernel, DecoderRefusesWhatNoEncoderWrites) {
  Encoded out = Encode({7, -7, 3});
  uint8_t decoded[12];
  const auto decode = [&] {
    return Portable().int4.decode[0](out.payload.data(),
                                     {.count = 3, .group = 32}, decoded);
  };
  EXPECT_TRUE(decode());
  out.payload[3] |= 0x10;  // the unused half of the last byte
  EXPECT_FALSE(decode());
  out.payload[3] &= 0x0f;
  for (uint16_t scale : {0x7c00, 0x7e00, 0x8000, 0xbc00}) {
    std::memcpy(out.payload.data(), &scale, 2);
    EXPECT_FALSE(decode()) << scale;
  }
}

TEST(Int8Kernel, IntegersUpTo127AreExact) {
  const std::string bytes = testing::F32Bytes({127, -127, 3, 0, -128.4f});
  std::vector<uint8_t> payload(BlockSize(8, 5, 32));
  std::vector<float> decoded(5);
  DistortionSums sums;
  const EncodeFault fault = Portable().int8.encode[0](
      reinterpret_cast<const uint8_t*>(bytes.data()), {.count = 4, .group = 32},
      payload.data(), reinterpret_cast<uint8_t*>(decoded.data()), &sums);
  ASSERT_EQ(fault.kind, EncodeFault::Kind::kNone);
  EXPECT_EQ(std::vector<uint8_t>(payload.begin() + 2, payload.begin() + 6),
            (std::vector<uint8_t>{127, 129, 3, 0}));
  EXPECT_EQ(sums.sum_e2, 0);
}

TEST(Rotation, SpreadsAnOutlierAndKeepsTheRest) {
  // One large value among 64 small ones ruins plain int4, and not the rotated.
  std::vector<float> values(64, 0.1f);
  values[5] = 20;
  const std::string bytes = testing::F32Bytes(values);
  const auto error = [&](size_t rotation) {
    std::vector<uint8_t> payload(BlockSize(4, 64, 64));
    DistortionSums sums;
    Portable().int4.encode[0](reinterpret_cast<const uint8_t*>(bytes.data()),
                              {.count = 64, .rotation = rotation},
                              payload.data(), nullptr, &sums);
    return sums.max_abs_e;
  };
  EXPECT_GE(error(1), 0.09);  // every small value is lost
  EXPECT_LT(error(64), 3.0);
}

using Member = const GroupedKernels KernelSet::*;
constexpr std::pair<Member, int> kCodings[] = {{&KernelSet::int4, 4},
                                               {&KernelSet::int8, 8}};

TEST(GroupedKernels, DecodingGivesWhatEncodingSaid) {
  for (const auto& [member, bits] : kCodings) {
    const GroupedKernels& set = Portable().*member;
    for (DType dtype : NumberDTypes()) {
      for (size_t group : {32, 64, 128}) {
        for (size_t count :
             {1, 7, 31, 32, 33, 63, 64, 65, 127, 129, 4095, 4096}) {
          for (size_t rotation : {1, 2, 64, 256}) {
            if (count % rotation != 0) continue;
            const BlockLayout layout = {count, group, rotation};
            const std::string source = testing::RandomBytes(dtype, count, 7);
            std::vector<uint8_t> payload(BlockSize(bits, count, group));
            std::vector<uint8_t> said(source.size()), decoded(source.size());
            DistortionSums sums;
            const size_t index = static_cast<size_t>(dtype);
            const EncodeFault fault = set.encode[index](
                reinterpret_cast<const uint8_t*>(source.data()), layout,
                payload.data(), said.data(), &sums);
            ASSERT_EQ(fault.kind, EncodeFault::Kind::kNone);
            ASSERT_TRUE(
                set.decode[index](payload.data(), layout, decoded.data()));
            EXPECT_EQ(said, decoded);
            EXPECT_EQ(sums.count, count);
            EXPECT_LT(sums.sum_e2, 0.05 * sums.sum_x2);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace kvcompress::kernels
