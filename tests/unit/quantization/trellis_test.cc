// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "quantization/trellis.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "entropy/tables.h"

namespace kvcompress {
namespace {

TEST(Trellis, MovesAsTheFormatSays) {
  // 4 l + 2 (h xor p) + (l xor m).
  EXPECT_EQ(coding::NextState(0, 0), 0);
  EXPECT_EQ(coding::NextState(0, -3), 2);
  EXPECT_EQ(coding::NextState(2, 0), 1);
  EXPECT_EQ(coding::NextState(1, 1), 7);
  EXPECT_EQ(coding::NextState(7, 5), 4);
  for (int quantum = -5; quantum <= 5; ++quantum) {
    for (const bool odd : {false, true}) {
      EXPECT_EQ(coding::QuantumOf(coding::LevelOf(quantum, odd), odd), quantum);
    }
  }
  EXPECT_EQ(coding::LevelOf(-2, true), -3);
  EXPECT_EQ(coding::LevelOf(-2, false), -4);
}

// What the encoder chooses costs no more than any other sequence.
TEST(Trellis, FindsTheCheapestSequence) {
  std::mt19937 random(5);
  for (int round = 0; round < 50; ++round) {
    constexpr size_t kTokens = 5;
    constexpr float kWeight = 0.05f;
    const int klass = 10 + round % 12;
    std::vector<coding::TrellisInput> input(kTokens);
    for (coding::TrellisInput& each : input) {
      each = {.exact = static_cast<float>(random()) * 0x1p-30f - 2,
              .klass = klass,
              .error_per_bit = kWeight};
    }
    const auto cost = [&](const std::vector<int32_t>& quanta) {
      double sum = 0;
      uint8_t state = 0;
      for (size_t t = 0; t < kTokens; ++t) {
        const bool odd = coding::IsOddState(state);
        const double error =
            input[t].exact - 0.5 * coding::LevelOf(quanta[t], odd);
        sum += error * error;
        sum += kWeight / 256 *
               coding::GetTables().Cost(
                   coding::TableOf(coding::SplitClass(klass), odd), quanta[t]);
        state = coding::NextState(state, quanta[t]);
      }
      return sum;
    };
    std::vector<int32_t> found(kTokens);
    coding::TrellisEncoder().Quantize(input, found.data());
    std::vector<int32_t> quanta(kTokens, -3);
    double least = 1e9;
    while (true) {
      least = std::min(least, cost(quanta));
      size_t t = 0;
      while (t < kTokens && ++quanta[t] > 3) quanta[t++] = -3;
      if (t == kTokens) break;
    }
    EXPECT_LT(cost(found), least + 1e-3) << round;
  }
}

}  // namespace
}  // namespace kvcompress
