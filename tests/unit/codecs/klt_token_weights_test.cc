// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>
#include <vector>

#include "codecs/klt/geometry.h"
#include "codecs/klt/preset.h"
#include "codecs/klt/repeats.h"
#include "codecs/klt/token_weights.h"

namespace kvcompress {
namespace {

klt::Preset PresetOf(const char* text) {
  return klt::Schema().Parse(text)->As<klt::Preset>();
}

TEST(Weights, OlderTokensHaveCoarserSteps) {
  const klt::Preset preset = PresetOf("max");
  const std::vector<int8_t> offsets =
      klt::OffsetsOf(preset, klt::AttentionOf(1000, {}));
  EXPECT_TRUE(std::is_sorted(offsets.begin(), offsets.end()));
  EXPECT_GE(offsets.front(), -3);  // three quarters of an octave coarser
  EXPECT_LE(offsets.back(), 8);    // two octaves finer
  EXPECT_GE(offsets.back(), 4);
  const klt::Preset plain = PresetOf("0.6,0.7");
  EXPECT_EQ(klt::OffsetsOf(plain, klt::AttentionOf(3, {})),
            std::vector<int8_t>(3));
}

// Keys [1, 2, tokens, 4] whose channels are off by a half and go up and down by
// `size`, but for the first four tokens.
KeyHints Told(double size, size_t tokens = 64) {
  const TensorSpec spec = {.dtype = DType::kF32,
                           .shape = {1, 2, tokens, 4},
                           .role = TensorRole::kKey};
  std::vector<float> values(2 * tokens * 4, 0.5f);
  for (size_t row = 0; row < 2 * tokens; ++row) {
    const double sink = row % tokens < 4 ? 100 : 1;
    for (size_t c = 0; c < 4; ++c) {
      values[row * 4 + c] +=
          static_cast<float>(sink * (row % 2 == 0 ? size : -size));
    }
  }
  return klt::AnalyzeKeys(klt::Geometry(spec), [&](size_t head, size_t begin,
                                                   size_t end, float* out) {
    std::copy(&values[(head * tokens + begin) * 4],
              &values[(head * tokens + end) * 4], out);
  });
}

// How a head of 16 channels repeats itself whose tokens are these of some
// random ones, each with a little of its own.
double RepetitionOf(const std::vector<size_t>& text) {
  constexpr size_t kChannels = 16;
  const size_t tokens = text.size();
  std::mt19937 random(1);
  const auto number = [&] {
    return static_cast<float>(random()) * 0x1p-31f - 1;
  };
  std::vector<float> words(tokens * kChannels);
  for (float& value : words) value = 3 + number();
  std::vector<float> values;
  for (const size_t word : text) {
    for (size_t c = 0; c < kChannels; ++c) {
      values.push_back(words[word * kChannels + c] + 0.1f * number());
    }
  }
  const TensorSpec spec = {.dtype = DType::kF32,
                           .shape = {1, 1, tokens, kChannels}};
  return klt::Repetition(
      klt::Geometry(spec), [&](size_t, size_t begin, size_t end, float* out) {
        std::copy(&values[begin * kChannels], &values[end * kChannels], out);
      });
}

// `period` tokens over and over.
std::vector<size_t> Periodic(size_t period, size_t tokens = 400) {
  std::vector<size_t> text(tokens);
  for (size_t t = 0; t < tokens; ++t) text[t] = t % period;
  return text;
}

TEST(Repetition, IsFoundWhereTokensComeAgain) {
  EXPECT_EQ(RepetitionOf(Periodic(100)), 1);
  EXPECT_EQ(RepetitionOf(Periodic(250)), 1);
  EXPECT_EQ(RepetitionOf(Periodic(400)), 0);
  EXPECT_EQ(RepetitionOf(Periodic(10, 60)), 0);  // too few to tell
}

TEST(Repetition, IsNotFoundInWordsThatComeAgainAmongOthers) {
  std::vector<size_t> text;
  for (size_t word = 0; word < 200; ++word) {
    const size_t first = 4 * (word < 100 ? word : word * 37 % 100);
    for (size_t i = 0; i < 4; ++i) text.push_back(first + i);
  }
  EXPECT_EQ(RepetitionOf(text), 0);
}

TEST(Repetition, RefinesCoarsePresetsAlone) {
  const klt::Preset ultra = PresetOf("ultra");
  const klt::Preset refined = klt::Refined(ultra, 1);
  EXPECT_DOUBLE_EQ(refined.steps.value_step, 1);
  EXPECT_DOUBLE_EQ(refined.sharpening, 2 * ultra.sharpening);
  EXPECT_EQ(refined.steps.key_step, ultra.steps.key_step);
  EXPECT_EQ(klt::Refined(ultra, 0).steps.value_step, ultra.steps.value_step);
  const klt::Preset fine = PresetOf("1,0.7,96,0.3,0.5");
  EXPECT_EQ(klt::Refined(fine, 1).steps.value_step, fine.steps.value_step);
  EXPECT_EQ(klt::Refined(fine, 1).sharpening, fine.sharpening);
}

TEST(AnalyzeKeys, SharpnessIsTheFourthPowerWithoutMeansAndSinks) {
  EXPECT_NEAR(Told(1).sharpness.value(), 0, 1e-9);
  EXPECT_NEAR(Told(2).sharpness.value(), 4, 1e-9);
  EXPECT_EQ(Told(2).attention.size(), 64);
}

TEST(AnalyzeKeys, TellsNothingOfKeysThatAreAllTheSameOrSinks) {
  EXPECT_FALSE(Told(0).sharpness.has_value());
  EXPECT_FALSE(Told(1, 4).sharpness.has_value());
}

TEST(SharpnessFactor, ShrinksStepsOfSharpLayersWithinBounds) {
  const klt::Preset preset = PresetOf("1.8,2.8,96,0.3,0.75");
  EXPECT_EQ(klt::SharpnessFactor(preset, std::nullopt), 1);
  EXPECT_EQ(klt::SharpnessFactor(preset, -50), 1);
  EXPECT_EQ(klt::SharpnessFactor(preset, 1.5), 1);
  EXPECT_NEAR(klt::SharpnessFactor(preset, 3.5), std::exp2(-1.5), 1e-12);
  EXPECT_EQ(klt::SharpnessFactor(preset, 50), std::exp2(-4));
  const klt::Preset half = PresetOf("1.8,2.8,96,0.3,0.5");
  EXPECT_NEAR(klt::SharpnessFactor(half, 6), std::exp2(-2.25), 1e-12);
  EXPECT_NEAR(klt::SharpnessFactor(half, 10), std::exp2(-2.75), 1e-12);
  EXPECT_EQ(klt::SharpnessFactor(PresetOf("1.8,2.8,96,0.3"), 50), 1);
}

TEST(Preset, SharpeningIsTheFifthNumber) {
  EXPECT_EQ(PresetOf("1.8,2.8,96,0.3,0.75").sharpening, 0.75);
  EXPECT_EQ(PresetOf("1.8,2.8,96,0.3,2").sharpening, 2);
  for (const char* text : {"1.8,2.8,96,0.3,2.1", "1.8,2.8,96,0.3,",
                           "1.8,2.8,96,0.3,-1", "1.8,2.8,96,0.3,0.75,1"}) {
    EXPECT_FALSE(klt::Schema().Parse(text).ok()) << text;
  }
}

}  // namespace
}  // namespace kvcompress
