// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "coding/strip.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace kvcompress::coding {
namespace {

// Groups of 24 channels, the last of 12, at 10 tokens.
constexpr GroupLayout kLayout = {
    .channels = 60, .group_channels = 24, .tokens = 10};

TEST(Strip, FindsTheQuantaOfGroups) {
  const std::vector<uint8_t> classes(kLayout.channels, 20);
  const Strip first(kLayout, classes, 0, kClasses - 1);
  EXPECT_EQ(first.size(), 32);
  EXPECT_FALSE(first.is_run());
  EXPECT_EQ(first.Place(23, 2), 2 * 24 + 23);
  EXPECT_EQ(first.Place(24, 2), 24 * 10 + 2 * 24);
  const Strip last(kLayout, classes, 32, kClasses - 1);
  EXPECT_EQ(last.size(), 28);
  EXPECT_EQ(last.Place(27, 9), 48 * 10 + 9 * 12 + 11);
}

TEST(Strip, ClassesMoveByTheOffsetOfATokenAndNoFurtherThanTheLast) {
  const std::vector<uint8_t> classes(kLayout.channels, 25);
  Strip strip(kLayout, classes, 32, 30);
  EXPECT_EQ(strip.At(0).tables[0], 25);
  EXPECT_EQ(strip.At(-4).tables[0], 21);
  // Class 29: table 25 and one low bit. Class 30 is the last.
  EXPECT_EQ(strip.At(4).tables[0], 25);
  EXPECT_EQ(strip.At(4).low_counts[0], 1);
  EXPECT_EQ(strip.At(4).low_lanes, (uint32_t{1} << 28) - 1);
  EXPECT_EQ(strip.At(48).tables[0], 26);
  EXPECT_EQ(strip.At(48).tables[28], kNoTable);
}

}  // namespace
}  // namespace kvcompress::coding
