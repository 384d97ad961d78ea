// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "coding/geometry.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace kvcompress::coding {
namespace {

TensorSpec OfShape(std::vector<uint64_t> shape) {
  TensorSpec spec;
  spec.shape = std::move(shape);
  return spec;
}

TEST(Geometry, BlocksHaveEachElementOnce) {
  for (const Cut cut : {Cut::kConsecutive, Cut::kAcrossHeads}) {
    for (const TensorSpec& spec :
         {OfShape({5, 7}), OfShape({2, 3, 2500, 16}), OfShape({1, 70, 9, 64}),
          OfShape({1, 1, 3000, 256}), OfShape({3, 1, 1})}) {
      const Geometry geometry(spec, cut);
      ASSERT_TRUE(geometry.codable());
      std::vector<int> seen(geometry.heads() * geometry.tokens() *
                            geometry.channels());
      uint64_t next = 0;
      for (uint64_t i = 0; i < geometry.block_count(); ++i) {
        const Block block = geometry.block(i);
        if (cut == Cut::kConsecutive) {
          EXPECT_EQ(geometry.RowBegin(block, 0), next);
          next += geometry.Elements(block);
        }
        for (size_t row = 0; row < block.heads * block.tokens; ++row) {
          for (size_t c = 0; c < geometry.channels(); ++c) {
            ++seen[geometry.RowBegin(block, row) + c];
          }
        }
      }
      EXPECT_EQ(seen, std::vector<int>(seen.size(), 1));
    }
  }
}

TEST(Geometry, HeadsMayBeTooLarge) {
  EXPECT_TRUE(Geometry(OfShape({8, 4096}), Cut::kConsecutive).codable());
  EXPECT_FALSE(Geometry(OfShape({8, 4097}), Cut::kConsecutive).codable());
  EXPECT_TRUE(Geometry(OfShape({8, 1024}), Cut::kAcrossHeads).codable());
  EXPECT_FALSE(Geometry(OfShape({8, 1025}), Cut::kAcrossHeads).codable());
}

TEST(Geometry, WithoutElementsThereAreNoBlocks) {
  EXPECT_FALSE(Geometry(OfShape({4, 0, 8}), Cut::kConsecutive).codable());
  EXPECT_FALSE(Geometry(OfShape({4, 0, 8}), Cut::kAcrossHeads).codable());
}

}  // namespace
}  // namespace kvcompress::coding
