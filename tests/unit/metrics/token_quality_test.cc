// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "metrics/token_quality.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "kvcompress/metric_table.h"
#include "support/safetensors_file.h"

namespace kvcompress {
namespace {

TokenSums Measure(std::vector<uint64_t> shape, const std::vector<float>& source,
                  const std::vector<float>& decoded, size_t chunk = 1000) {
  TokenAccumulator tokens(
      {.name = "x", .shape = std::move(shape), .role = TensorRole::kKey});
  const std::string x = testing::F32Bytes(source);
  const std::string y = testing::F32Bytes(decoded);
  for (size_t i = 0; i < x.size(); i += chunk) {
    tokens.AddSource(absl::string_view(x).substr(i, chunk));
  }
  for (size_t i = 0; i < y.size(); i += chunk) {
    tokens.AddDecoded(absl::string_view(y).substr(i, chunk));
  }
  return tokens.Compute();
}

TEST(TokenQuality, AppliesToTensorsWithTokens) {
  EXPECT_TRUE(TokenAccumulator::Applies({.shape = {1, 1, 1, 1}}));
  EXPECT_FALSE(TokenAccumulator::Applies({.shape = {1, 1, 1}}));
  EXPECT_FALSE(TokenAccumulator::Applies({.shape = {1, 2, 0, 64}}));
  EXPECT_TRUE(TokenAccumulator::Applies({.shape = {1, 1, 1, 65536}}));
  EXPECT_FALSE(TokenAccumulator::Applies({.shape = {1, 1, 1, 65537}}));
}

TEST(TokenQuality, SaysWhatMemoryItTakes) {
  const uint64_t channels = 64 * (2 * 8 + 4 + 2 * 4);
  EXPECT_EQ(TokenAccumulator::MemoryFor({.shape = {1, 3, 100, 64}}),
            channels + 3 * 16);
  EXPECT_EQ(TokenAccumulator::MemoryFor({.shape = {1, 8, 1 << 20, 64}}),
            channels + 83887 * 16);
}

TEST(TokenQuality, AConstantOffsetCarriesNoSignal) {
  // Two tokens of two channels: means 10 and 2, deviations 1 and 0.
  const TokenSums sums =
      Measure({1, 1, 2, 2}, {9, 2, 11, 2}, {9, 2, 11, 2.5f}, 3);
  EXPECT_EQ(sums.centred_x2, 2);
  EXPECT_EQ(sums.key_e2, 0.25);
  EXPECT_EQ(sums.first_e2, 0);
  EXPECT_EQ(sums.first_count, 2);
  // One row of two is exact; the other is the 1st percentile.
  EXPECT_FLOAT_EQ(*sums.token_snr_db_p1, 10 * std::log10(125 / 0.25));
}

// Squares of values less their mean, in two passes.
double CentredSquares(const std::vector<float>& values) {
  long double sum = 0;
  for (const float value : values) sum += value;
  const long double mean = sum / static_cast<long double>(values.size());
  long double squares = 0;
  for (const float value : values) squares += (value - mean) * (value - mean);
  return static_cast<double>(squares);
}

// Relative to 1e-6 dB.
constexpr double kTolerance = 2.3e-7;

TEST(TokenQuality, ASmallSpreadSurvivesALargeMean) {
  for (const size_t tokens : {2, 63, 64, 65, 1000, 100000}) {
    for (const double mean : {0.0, 1.0, 1e2, 1e4, 1e6, -1e6}) {
      std::mt19937 random(1);
      std::vector<float> source;
      for (size_t i = 0; i < tokens; ++i) {
        const double noise = static_cast<double>(random()) * 0x1p-31 - 1;
        source.push_back(static_cast<float>(mean + noise));
      }
      std::vector<float> decoded = source;
      decoded[0] += 1;
      const double want = CentredSquares(source);
      const TokenSums sums = Measure({1, 1, tokens, 1}, source, decoded);
      EXPECT_NEAR(sums.centred_x2, want, kTolerance * want)
          << tokens << " tokens around " << mean;
      for (const size_t chunk : {4, 100, 260, 4096}) {
        EXPECT_EQ(Measure({1, 1, tokens, 1}, source, decoded, chunk).centred_x2,
                  sums.centred_x2)
            << tokens << " tokens in chunks of " << chunk;
      }
    }
  }
}

TEST(TokenQuality, OneOutlierMayStandAnywhere) {
  for (const size_t tokens : {2, 64, 129, 100000}) {
    for (const size_t place : {size_t{0}, size_t{1}, tokens / 2, tokens - 1}) {
      for (const float value : {0.0f, 0.1f, 3e4f}) {
        std::vector<float> source(tokens, value);
        source[place] = std::nextafterf(value, 1e9f);
        const double least = CentredSquares(source);
        EXPECT_NEAR(Measure({1, 1, tokens, 1}, source, source).centred_x2,
                    least, kTolerance * least);
        source[place] = -1e6f;
        const double want = CentredSquares(source);
        EXPECT_NEAR(Measure({1, 1, tokens, 1}, source, source).centred_x2, want,
                    kTolerance * want)
            << tokens << " tokens of " << value << ", the outlier at " << place;
      }
    }
  }
}

TEST(TokenQuality, AConstantChannelHasNoSpread) {
  for (const float value : {0.1f, 1e10f, 3e38f}) {
    const std::vector<float> source(1000, value);
    EXPECT_EQ(Measure({1, 1, 500, 2}, source, source).centred_x2, 0) << value;
  }
}

TEST(TokenQuality, WhatIsNotFiniteLeavesSumsFinite) {
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    std::vector<float> source(400, 2);
    source[0] = source[257] = bad;
    EXPECT_TRUE(
        std::isfinite(Measure({1, 1, 200, 2}, source, source).centred_x2));
  }
}

TEST(TokenQuality, HeadsHaveMeansOfTheirOwn) {
  const TokenSums sums = Measure({1, 2, 2, 1}, {1, 1, 5, 5}, {2, 1, 6, 5});
  EXPECT_EQ(sums.centred_x2, 0);
  EXPECT_EQ(sums.first_e2, 2);  // token 0 of both heads
  EXPECT_EQ(sums.first_count, 2);
}

TEST(TokenQuality, ThePercentileIsByNearestRank) {
  std::vector<float> source(300, 1), decoded(300, 1);
  decoded[7] = 1.5f;
  decoded[8] = 1.25f;
  EXPECT_FALSE(Measure({1, 1, 300, 1}, source, decoded).token_snr_db_p1);
  decoded[9] = 1.125f;
  EXPECT_FLOAT_EQ(*Measure({1, 1, 300, 1}, source, decoded).token_snr_db_p1,
                  10 * std::log10(64.0));
}

TEST(TokenQuality, ThePercentileIsThatOfAllRowsInAnyOrder) {
  std::mt19937 random(1);
  constexpr size_t kRows = 5000;
  std::vector<float> source(kRows, 1), decoded;
  std::vector<double> ratios;
  for (size_t i = 0; i < kRows; ++i) {
    // Exact ones, equal ones, and runs of falling and of rising ones.
    const float error = i % 7 == 0
                            ? 0
                            : static_cast<float>(i < 2000   ? i / 3
                                                 : i < 4000 ? 4000 - i
                                                            : random() % 999) /
                                  1024;
    decoded.push_back(1 + error);
    const double e = static_cast<double>(decoded.back()) - 1;
    if (e != 0) ratios.push_back(1 / (e * e));
  }
  std::sort(ratios.begin(), ratios.end());
  EXPECT_FLOAT_EQ(
      *Measure({1, 2, kRows / 2, 1}, source, decoded, 999).token_snr_db_p1,
      10 * std::log10(ratios[kRows / 100 - 1]));
}

TEST(TokenQuality, TokensOfZerosAndExactOnesDoNotBreakIt) {
  EXPECT_EQ(*Measure({1, 1, 1, 2}, {0, 0}, {0, 1}).token_snr_db_p1, -300);
  EXPECT_FALSE(Measure({1, 1, 1, 2}, {0, 0}, {0, 0}).token_snr_db_p1);
  EXPECT_EQ(Measure({1, 1, 1, 2}, {INFINITY, 1}, {INFINITY, 1}).key_e2, 0);
}

TEST(TokenQuality, PoolingTakesTheLeastPercentile) {
  TokenSums a{.key_e2 = 1, .token_snr_db_p1 = 10};
  a.Merge({.key_e2 = 2, .token_snr_db_p1 = 5});
  a.Merge({.key_e2 = 0});
  EXPECT_EQ(a.key_e2, 3);
  EXPECT_EQ(a.token_snr_db_p1, 5);
}

TEST(TokenQuality, WhatIsCentredIsOfKeysAlone) {
  TokenAccumulator tokens({.shape = {1, 1, 1, 2}, .role = TensorRole::kValue});
  const std::string source = testing::F32Bytes({0, 3});
  tokens.AddSource(source);
  tokens.AddDecoded(testing::F32Bytes({0, 1}));
  Metrics metrics;
  AddTokenMetrics(tokens.Compute(), &metrics);
  EXPECT_FALSE(metrics.centred_snr_db);
  EXPECT_TRUE(metrics.token_snr_db_p1);
}

TEST(TokenQuality, SaysOfWhatItsMetricsAreNotKnown) {
  const auto unknown = [](TensorRole role, double max_error) {
    TokenSums pooled;
    pooled.Merge(
        TokenSums::Unknown({.shape = {2, 2}, .role = role}, max_error));
    pooled.Merge({.first_count = 1});
    Metrics metrics;
    AddTokenMetrics(pooled, &metrics);
    const auto is_unknown = [&](absl::string_view name) {
      return FindMetric(name).IsUnknown(metrics);
    };
    return std::pair(is_unknown("centred_snr_db"),
                     is_unknown("token_snr_db_p1"));
  };
  EXPECT_EQ(unknown(TensorRole::kKey, 0.1), std::pair(true, true));
  EXPECT_EQ(unknown(TensorRole::kValue, 0.1), std::pair(false, true));
  EXPECT_EQ(unknown(TensorRole::kNone, 0.1), std::pair(false, false));
  EXPECT_EQ(unknown(TensorRole::kKey, 0), std::pair(false, false)) << "exact";
}

}  // namespace
}  // namespace kvcompress
