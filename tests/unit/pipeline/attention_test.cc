// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "pipeline/attention.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

namespace kvcompress {
namespace {

TensorSpec Spec(TensorRole role, std::optional<uint32_t> layer) {
  return {.dtype = DType::kF32,
          .shape = {1, 1, 3, 8},
          .role = role,
          .layer = layer};
}

KeyHints Told(const AttentionHints& hints, TensorRole role,
              std::optional<uint32_t> layer) {
  EncodeHints told;
  told.from_keys.sharpness = 99;  // of another tensor
  hints.Tell(Spec(role, layer), {}, &told);
  return told.from_keys;
}

TEST(AttentionHints, ValuesAreToldWhatTheirKeysTold) {
  AttentionHints hints;
  hints.Learn(Spec(TensorRole::kKey, 7), {{1, 2, 3}, 4.5});
  const KeyHints told = Told(hints, TensorRole::kValue, 7);
  EXPECT_EQ(told.attention, (std::vector<float>{1, 2, 3}));
}

TEST(AttentionHints, NobodyElseIs) {
  AttentionHints hints;
  hints.Learn(Spec(TensorRole::kKey, 7), {{1, 2, 3}, 4.5});
  hints.Learn(Spec(TensorRole::kValue, 8), {{1, 2, 3}, 4.5});
  hints.Learn(Spec(TensorRole::kKey, std::nullopt), {{1, 2, 3}, 4.5});
  for (const KeyHints& told :
       {Told(hints, TensorRole::kKey, 7), Told(hints, TensorRole::kValue, 8),
        Told(hints, TensorRole::kValue, std::nullopt)}) {
    EXPECT_TRUE(told.attention.empty());
    EXPECT_FALSE(told.sharpness.has_value());
  }
}

TEST(AttentionHints, OnlyTheLastKeysTell) {
  AttentionHints hints;
  hints.Learn(Spec(TensorRole::kKey, 0), {{1, 2, 3}, 1.0});
  hints.Learn(Spec(TensorRole::kKey, 1), {{4, 5, 6}, 2.0});
  EXPECT_TRUE(Told(hints, TensorRole::kValue, 0).attention.empty());
  EXPECT_EQ(Told(hints, TensorRole::kValue, 1).attention,
            (std::vector<float>{4, 5, 6}));
}

}  // namespace
}  // namespace kvcompress
