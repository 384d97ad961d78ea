// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "codecs/klt/packed_levels.h"

namespace kvcompress {
namespace {

std::vector<int32_t> ThereAndBack(const std::vector<int32_t>& levels,
                                  klt::PackedLevels* packed) {
  packed->Pack(levels);
  std::vector<int32_t> unpacked(levels.size());
  packed->Unpack(unpacked.data());
  return unpacked;
}

TEST(PackedLevels, KeepsLevelsOfAnySize) {
  klt::PackedLevels packed;
  std::vector<int32_t> levels;
  for (int32_t i = -400; i < 400; ++i) levels.push_back(i);
  for (const int32_t each : {-128, 127, 128, -129, 1 << 20, -(1 << 20)}) {
    levels.push_back(each);
  }
  EXPECT_EQ(ThereAndBack(levels, &packed), levels);
  // Nothing stays of those before.
  const std::vector<int32_t> few = {-127, 0, 127};
  EXPECT_EQ(ThereAndBack(few, &packed), few);
  EXPECT_EQ(ThereAndBack({}, &packed), std::vector<int32_t>());
  const std::vector<int32_t> wide(700, -128);
  EXPECT_EQ(ThereAndBack(wide, &packed), wide);
  std::vector<int32_t> all_sizes(300, 30000);
  all_sizes.push_back(-32768);
  all_sizes.push_back(1 << 20);
  EXPECT_EQ(ThereAndBack(all_sizes, &packed), all_sizes);
  EXPECT_EQ(ThereAndBack(few, &packed), few);
}

}  // namespace
}  // namespace kvcompress
