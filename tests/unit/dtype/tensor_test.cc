// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "kvcompress/tensor.h"

#include <gtest/gtest.h>

namespace kvcompress {
namespace {

absl::StatusOr<uint64_t> Count(std::vector<uint64_t> shape,
                               DType dtype = DType::kF32) {
  return ElementCount({.name = "x", .dtype = dtype, .shape = std::move(shape)});
}

TEST(ElementCount, MultipliesTheShape) {
  EXPECT_EQ(*Count({}), 1);
  EXPECT_EQ(*Count({0}), 0);
  EXPECT_EQ(*Count({1, 3, 96, 64}), 18432);
  EXPECT_EQ(*Count({0, uint64_t{1} << 40, uint64_t{1} << 40}), 0);
}

TEST(ElementCount, RefusesWhatOverflows) {
  const uint64_t big = uint64_t{1} << 32;
  EXPECT_FALSE(Count({big, big}).ok());  // wraps to exactly 0
  EXPECT_FALSE(Count({big, big, 0}).ok());
  EXPECT_FALSE(Count({uint64_t{1} << 61}).ok());  // in bytes
  EXPECT_TRUE(Count({uint64_t{1} << 60}).ok());
  EXPECT_FALSE(Count(std::vector<uint64_t>(kMaxRank + 1, 1)).ok());
  EXPECT_TRUE(Count(std::vector<uint64_t>(kMaxRank, 1)).ok());
}

TEST(InferRole, ReadsLayerAndRoleFromTheName) {
  const auto infer = [](std::string name) {
    TensorSpec spec{.name = std::move(name)};
    InferRole(&spec);
    return spec;
  };
  EXPECT_EQ(infer("layer_0_key").role, TensorRole::kKey);
  EXPECT_EQ(infer("layer_0_key").layer, 0);
  EXPECT_EQ(infer("layer_31_value").role, TensorRole::kValue);
  EXPECT_EQ(infer("layer_31_value").layer, 31);
  for (const char* other :
       {"layer_01_key", "layer__key", "layer_-1_key", "layer_1x_key",
        "layer_1234567890_key", "layer_1_keys", "xlayer_1_key", "key", ""}) {
    EXPECT_EQ(infer(other).role, TensorRole::kNone) << other;
    EXPECT_EQ(infer(other).layer, std::nullopt) << other;
  }
}

TEST(InferRole, KeepsWhatWasDeclared) {
  TensorSpec spec{
      .name = "layer_3_key", .role = TensorRole::kValue, .layer = 7};
  InferRole(&spec);
  EXPECT_EQ(spec.role, TensorRole::kValue);
  EXPECT_EQ(spec.layer, 7);
}

}  // namespace
}  // namespace kvcompress
