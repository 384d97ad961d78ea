// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "quantization/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/rows.h"
#include "kvcompress/layout.h"
#include "quantization/rope_candidates.h"

namespace kvcompress::coding {
namespace {

TEST(Rope, SinesAreThoseOfTheMathematicians) {
  for (uint64_t i = 0; i < 4096; ++i) {
    const uint64_t phase = i * 0x0010123456789abc;
    const double angle = static_cast<double>(phase) * 0x1p-64 * 2 * M_PI;
    const kernels::CosSin got = kernels::CosSinOf(phase);
    EXPECT_NEAR(got.cos, std::cos(angle), 4e-8);
    EXPECT_NEAR(got.sin, std::sin(angle), 4e-8);
  }
  for (const size_t pairs : {1, 3, 32, 64}) {
    EXPECT_NEAR(static_cast<double>(RatioOf(10000, pairs)) * 0x1p-64,
                std::pow(10000, -1.0 / static_cast<double>(pairs)), 1e-14);
  }
}

// Radians in a token.
double AngleOf(uint64_t increment) {
  return static_cast<double>(increment) * 0x1p-64 * 2 * M_PI;
}

TEST(Rope, RunsMultiplyIncrements) {
  Rotation rotation{.ratio = RatioOf(10000, 8)};
  const std::vector<uint64_t> plain = Increments(rotation, 8);
  rotation.runs = {{2, uint32_t{1} << 31}, {3, uint32_t{1} << 29}, {1, 0}};
  const std::vector<uint64_t> scaled = Increments(rotation, 8);
  const double expected[] = {1, 1, 0.25, 0.25, 0.25, 0, 1, 1};
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_NEAR(AngleOf(scaled[i]), AngleOf(plain[i]) * expected[i], 1e-15);
  }
}

TEST(Rope, ScalingIsThatOfThePapers) {
  const RopeEmbedding linear{
      .scaling = {.type = RopeScaling::Type::kLinear, .factor = 8}};
  EXPECT_EQ(RopeMultipliers(linear, 2), std::vector<double>(2, 0.125));
  // Of 64 pairs of Llama 3.1 the first 29 turn fast enough, and the last 28
  // slowly enough.
  const RopeEmbedding llama3{.theta = 5e5,
                             .scaling = {.type = RopeScaling::Type::kLlama3,
                                         .factor = 8,
                                         .original_positions = 8192}};
  const std::vector<double> multipliers = RopeMultipliers(llama3, 64);
  EXPECT_EQ(multipliers[28], 1);
  EXPECT_LT(multipliers[29], 1);
  EXPECT_GT(multipliers[34], 0.125);
  EXPECT_EQ(multipliers[35], 0.125);
  const RopeEmbedding yarn{.theta = 1e6,
                           .scaling = {.type = RopeScaling::Type::kYarn,
                                       .factor = 4,
                                       .original_positions = 32768}};
  const std::vector<double> ramp = RopeMultipliers(yarn, 64);
  EXPECT_EQ(ramp[23], 1);
  EXPECT_NEAR(ramp[24], 1 - 0.75 / 17, 1e-12);
  EXPECT_EQ(ramp[40], 0.25);
}

TEST(Rope, APartIsTurnedThereAndBack) {
  constexpr size_t kChannels = 10;
  constexpr size_t kTokens = 70;
  Rotation rotation{.ratio = RatioOf(10000, 3),
                    .interleaved = true,
                    .first = 2,
                    .pairs = 3,
                    .shift = 2};
  std::vector<float> values(kTokens * kChannels);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(i % 17) - 8;
  }
  const std::vector<float> before = values;
  Rotator rotator;
  rotator.Rotate(rotation, true, kChannels, 5, kTokens, values.data());
  for (size_t t = 0; t < kTokens; ++t) {
    float squares = 0;
    float turned = 0;
    for (size_t i = 0; i < kChannels; ++i) {
      const size_t at = t * kChannels + i;
      if (i < 2 || i >= 8) {
        EXPECT_EQ(values[at], before[at]);
      } else {
        squares += before[at] * before[at];
        turned += values[at] * values[at] / 16;  // two halvings of steps
      }
    }
    EXPECT_NEAR(turned, squares, 1e-3);
  }
  rotator.Rotate(rotation, false, kChannels, 5, kTokens, values.data());
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_NEAR(values[i], before[i], 1e-4);
  }
}

TEST(Rope, ALatentHasBothPartsOrOne) {
  const RopeParameters rope{
      .embeddings = {{.first_channel = 512, .rotary_channels = 64}}};
  const EncodeHints hints{.rope = std::make_shared<RopeParameters>(rope)};
  const auto candidates = [&](size_t channels) {
    return CandidatesFor({}, TensorRole::kNone, hints, channels).list;
  };
  const auto rotation = [&](size_t channels) {
    return candidates(channels).front().rotation;
  };
  EXPECT_EQ(rotation(576).first, 512);
  EXPECT_EQ(rotation(576).pairs, 32);
  EXPECT_EQ(rotation(576).shift, 1);
  EXPECT_TRUE(rotation(64).IsPlain());
  EXPECT_TRUE(FitsRope(rope, 0, 512));
  EXPECT_FALSE(FitsRope(rope, 0, 128));
  EXPECT_TRUE(candidates(512).empty());
}

// Where a rotated part is a tensor of its own, as in a head of both: half
// steps.
TEST(Rope, ARotatedPartHasFinerSteps) {
  const EncodeHints told{
      .rope = std::make_shared<RopeParameters>(RopeParameters{
          .embeddings = {{.first_channel = 512, .rotary_channels = 64}}})};
  const auto factor = [](const TensorSpec& spec, const EncodeHints& hints) {
    return CandidatesFor(spec, spec.role, hints, spec.shape.back()).step_factor;
  };
  const TensorSpec source{.name = "kv_cache", .shape = {30, 576}};
  const Layout layout = *Layout::Of("mla", source);
  EXPECT_FALSE(IsRotatedPart(layout.View(0)));
  EXPECT_TRUE(IsRotatedPart(layout.View(1)));
  const TensorSpec plain{.name = "a[part=rope]", .shape = {1, 1, 30, 64}};
  EXPECT_FALSE(IsRotatedPart(plain));
  for (const EncodeHints& hints : {EncodeHints(), told}) {
    EXPECT_EQ(factor(layout.View(0), hints), 1);
    EXPECT_EQ(factor(layout.View(1), hints), 0.5);
  }
  EXPECT_EQ(factor(plain, {}), 1);
  EXPECT_EQ(factor(plain, told), 1);
  const TensorSpec both{.name = "a", .shape = {1, 1, 30, 576}};
  EXPECT_EQ(factor(both, told), 1);
}

TEST(Rope, WhatCannotBeIsRefused) {
  const auto valid = [](RopeEmbedding embedding) {
    return ValidateRope({.embeddings = {embedding}}).ok();
  };
  EXPECT_TRUE(valid({}));
  EXPECT_FALSE(valid({.theta = 0.5}));
  EXPECT_FALSE(valid({.theta = NAN}));
  EXPECT_FALSE(valid({.rotary_channels = 3}));
  EXPECT_FALSE(valid({.rotary_channels = 8192}));
  using Type = RopeScaling::Type;
  EXPECT_FALSE(valid({.scaling = {.type = Type::kLinear, .factor = 0}}));
  EXPECT_FALSE(valid({.scaling = {.type = Type::kLlama3, .factor = 2}}));
  EXPECT_FALSE(valid({.scaling = {.type = Type::kYarn,
                                  .factor = 2,
                                  .original_positions = 10,
                                  .beta_fast = 1}}));
  EXPECT_FALSE(ValidateRope({.layers = {1}}).ok());
  EXPECT_TRUE(ValidateRope({.embeddings = {{}}, .layers = {1, 0}}).ok());
}

}  // namespace
}  // namespace kvcompress::coding
