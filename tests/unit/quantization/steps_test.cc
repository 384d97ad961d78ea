// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "quantization/steps.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace kvcompress::coding {
namespace {

TEST(StepFactor, HalvesFourTimesAnOctave) {
  for (int offset = kMinOffset; offset <= kMaxOffset; ++offset) {
    EXPECT_NEAR(StepFactor(offset) / std::exp2(-offset / 4.0), 1, 1e-7);
  }
}

TEST(Steps, HaveElevenBits) {
  EXPECT_EQ(RoundToStep(0), 0x1p-100f);
  EXPECT_EQ(RoundToStep(1e300), 0x1p100f);
  EXPECT_EQ(RoundToStep(1 + 0x1p-12), 1);
  EXPECT_EQ(RoundToStep(1 + 0x1p-10), 1 + 0x1p-10f);
  EXPECT_TRUE(IsStep(RoundToStep(0.1)));
  EXPECT_FALSE(IsStep(0.1f));
  EXPECT_FALSE(IsStep(0));
}

TEST(Steps, MeansAreInEighths) {
  EXPECT_EQ(QuantizeMeans({0.5, -1, 0.07, 1e9}, 1),
            (std::vector<int32_t>{4, -8, 1, kMaxMean}));
}

}  // namespace
}  // namespace kvcompress::coding
