// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "codecs/klt/format.h"
#include "codecs/klt/preset.h"
#include "codecs/klt/weights.h"

namespace kvcompress {
namespace {

TEST(Weights, OlderTokensHaveCoarserSteps) {
  const klt::Preset preset = *klt::ParsePreset("max");
  const std::vector<int8_t> offsets =
      klt::OffsetsOf(preset, klt::AttentionOf(1000, {}));
  EXPECT_TRUE(std::is_sorted(offsets.begin(), offsets.end()));
  EXPECT_GE(offsets.front(), -2);  // half an octave coarser
  EXPECT_LE(offsets.back(), 8);    // two octaves finer
  EXPECT_GT(offsets.back(), 4);
  const klt::Preset plain = *klt::ParsePreset("high");
  EXPECT_EQ(klt::OffsetsOf(plain, klt::AttentionOf(3, {})),
            std::vector<int8_t>(3));
}

TEST(StepFactor, HalvesFourTimesAnOctave) {
  for (int offset = klt::kLeastOffset; offset <= klt::kMostOffset; ++offset) {
    EXPECT_NEAR(klt::StepFactor(offset) / std::exp2(-offset / 4.0), 1, 1e-7);
  }
}

}  // namespace
}  // namespace kvcompress
