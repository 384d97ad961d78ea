// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "pipeline/spare_strings.h"

#include <gtest/gtest.h>

#include <string>

namespace kvcompress {
namespace {

constexpr size_t kSize = 1 << 20;

TEST(SpareStringTest, GivesMemoryAgain) {
  SpareString spare;
  std::string first = spare.Take();
  std::string second = spare.Take();
  EXPECT_TRUE(first.empty());
  first.assign(kSize, 'x');
  second.assign(kSize, 'y');
  spare.PutBack(&first);
  spare.PutBack(&second);
  EXPECT_LT(first.capacity(), kSize);
  for (int i = 0; i < 2; ++i) {
    const std::string again = spare.Take();
    EXPECT_TRUE(again.empty());
    EXPECT_GE(again.capacity(), kSize);
  }
  EXPECT_LT(spare.Take().capacity(), kSize);
}

// Of more strings than were taken nothing is kept.
TEST(SpareStringTest, KeepsNoMoreThanWereInUse) {
  SpareString spare;
  for (int i = 0; i < 3; ++i) {
    std::string own(kSize, 'x');
    spare.PutBack(&own);
    EXPECT_TRUE(own.empty());
    EXPECT_LT(own.capacity(), kSize);
  }
  EXPECT_LT(spare.Take().capacity(), kSize);
}

}  // namespace
}  // namespace kvcompress
