// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "client/cpp/chunk_cover.h"

#include <limits>

#include "gtest/gtest.h"

namespace kvcompress {
namespace {

TEST(ChunkCoverTest, TakesTheHeadLast) {
  ChunkCover cover(8);
  EXPECT_TRUE(cover.Add(8, 4).ok());
  EXPECT_TRUE(cover.Add(12, 0).ok());
  EXPECT_TRUE(cover.Add(12, 3).ok());
  EXPECT_FALSE(cover.Finish().ok());
  EXPECT_TRUE(cover.Add(0, 5).ok());
  EXPECT_FALSE(cover.Finish().ok());
  EXPECT_TRUE(cover.Add(5, 3).ok());
  EXPECT_EQ(*cover.Finish(), 15);
}

TEST(ChunkCoverTest, AnEmptyFileIsComplete) {
  EXPECT_EQ(*ChunkCover().Finish(), 0);
}

TEST(ChunkCoverTest, RefusesGapsAndOverlaps) {
  EXPECT_FALSE(ChunkCover().Add(1, 1).ok());
  ChunkCover cover(8);
  EXPECT_TRUE(cover.Add(8, 4).ok());
  EXPECT_FALSE(cover.Add(13, 1).ok());
  EXPECT_FALSE(cover.Add(11, 1).ok());
  EXPECT_FALSE(cover.Add(0, 9).ok());
  EXPECT_FALSE(cover.Add(1, 1).ok());
  EXPECT_TRUE(cover.Add(0, 8).ok());
  EXPECT_FALSE(cover.Add(12, 1).ok()) << "the head is the end";
  EXPECT_EQ(*cover.Finish(), 12);
}

TEST(ChunkCoverTest, RefusesSizesBeyondAnyFile) {
  constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
  EXPECT_FALSE(ChunkCover().Add(0, kMax).ok());
  EXPECT_FALSE(ChunkCover(kMax).Add(kMax, 1).ok());
}

}  // namespace
}  // namespace kvcompress
