// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "kvcompress/metrics.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kvcompress/quality.h"

namespace kvcompress {
namespace {

DistortionSums Block(double x, double y) {
  const double e = y - x;
  return {.count = 1,
          .sum_x2 = x * x,
          .sum_y2 = y * y,
          .sum_xy = x * y,
          .sum_e2 = e * e,
          .sum_abs_e = std::abs(e),
          .max_abs_e = std::abs(e),
          .max_abs_x = std::abs(x)};
}

TEST(Metrics, AreExactOnSmallNumbers) {
  DistortionAccumulator sums;
  sums.Add(Block(3, 3));
  sums.Add(Block(-4, -5));
  const Metrics metrics = sums.Compute();
  EXPECT_EQ(metrics.elements, 2);
  EXPECT_EQ(metrics.mse, 0.5);
  EXPECT_EQ(metrics.rmse, std::sqrt(0.5));
  EXPECT_EQ(metrics.mae, 0.5);
  EXPECT_EQ(metrics.max_error, 1);
  EXPECT_DOUBLE_EQ(*metrics.snr_db, 10 * std::log10(25.0));
  EXPECT_DOUBLE_EQ(*metrics.psnr_db, 20 * std::log10(4 / std::sqrt(0.5)));
  EXPECT_DOUBLE_EQ(metrics.cosine_similarity,
                   29 / (std::sqrt(25.0) * std::sqrt(34.0)));
}

TEST(Metrics, AnExactReconstructionHasNoSnr) {
  DistortionAccumulator sums;
  EXPECT_FALSE(sums.Compute().snr_db);
  sums.Add(Block(2, 2));
  const Metrics metrics = sums.Compute();
  EXPECT_FALSE(metrics.snr_db);
  EXPECT_FALSE(metrics.psnr_db);
  EXPECT_EQ(metrics.cosine_similarity, 1);
  EXPECT_EQ(metrics.rmse, 0);
}

TEST(Metrics, AVectorThatVanishesHasCosineZero) {
  DistortionAccumulator sums;
  sums.Add(Block(2, 0));
  EXPECT_EQ(sums.Compute().cosine_similarity, 0);
  EXPECT_EQ(*sums.Compute().snr_db, 0);
}

// F64 numbers of 1e-170 that were restored as 0 once counted as exact, since
// their squares are 0.
TEST(Metrics, ErrorsWhoseSquaresAreLostAreNotExact) {
  DistortionAccumulator sums;
  sums.Add(Block(1e-170, 0));
  sums.Add(Block(-1e-170, 0));
  const Metrics lost = sums.Compute();
  EXPECT_EQ(lost.max_error, 1e-170);
  EXPECT_EQ(lost.rmse, 1e-170);
  EXPECT_DOUBLE_EQ(*lost.snr_db, -10 * std::log10(2.0));
  EXPECT_DOUBLE_EQ(*lost.psnr_db, 0);
  EXPECT_EQ(lost.cosine_similarity, 0);
  EXPECT_FALSE(Judge(lost, {}).passed);
}

TEST(Metrics, SumsDoNotLoseSmallBlocksBesideLargeOnes) {
  DistortionAccumulator sums;
  sums.Add({.count = 1, .sum_e2 = 1e16});
  for (int i = 0; i < 1000; ++i) sums.Add({.count = 1, .sum_e2 = 1});
  EXPECT_EQ(sums.Compute().mse * 1001, 1e16 + 1000);
}

TEST(Metrics, MergingIsPooling) {
  DistortionAccumulator all, a, b;
  for (int i = 0; i < 100; ++i) {
    const DistortionSums block = Block(i * 0.37, i * 0.37 + 0.01 * (i % 7));
    all.Add(block);
    (i < 40 ? a : b).Add(block);
  }
  a.Merge(b);
  EXPECT_DOUBLE_EQ(a.Compute().rmse, all.Compute().rmse);
  EXPECT_DOUBLE_EQ(*a.Compute().snr_db, *all.Compute().snr_db);
  EXPECT_EQ(a.Compute().elements, 100);
}

Metrics Sample(double rmse, double snr) {
  Metrics metrics;
  metrics.elements = 1;
  metrics.rmse = rmse;
  metrics.snr_db = snr;
  return metrics;
}

TEST(Quality, TheLevelIsTheBestWhoseBoundsBothHold) {
  const auto level = [](double rmse, double snr) {
    return QualityLevelName(Judge(Sample(rmse, snr), {}).level);
  };
  EXPECT_EQ(level(0.009, 41), "EXCELLENT");
  EXPECT_EQ(level(0.009, 40), "GOOD");
  EXPECT_EQ(level(0.045, 25.18), "ACCEPTABLE");
  EXPECT_EQ(level(0.05, 31), "ACCEPTABLE");
  EXPECT_EQ(level(0.1, 50), "POOR");
  EXPECT_EQ(level(0.01, 18), "POOR");
  EXPECT_EQ(QualityLevelName(Judge(Metrics(), {}).level), "EXCELLENT");
}

TEST(Quality, EachBoundThatDoesNotHoldIsNamed) {
  Metrics metrics = Sample(0.2, 10);
  metrics.max_error = 0.5;
  metrics.cosine_similarity = 0.5;
  const QualityVerdict verdict = Judge(metrics, {});
  EXPECT_FALSE(verdict.passed);
  ASSERT_EQ(verdict.violations.size(), 4);
  EXPECT_EQ(verdict.violations[0], "rmse 0.2 is not below 0.1");
  EXPECT_EQ(verdict.violations[1], "max_error 0.5 is not below 0.5");
  EXPECT_EQ(verdict.violations[2], "snr_db 10 is not above 18");
  EXPECT_EQ(verdict.violations[3], "cosine_similarity 0.5 is not above 0.99");
}

TEST(Quality, MissedBoundsAreNumbersToo) {
  Metrics metrics = Sample(0.2, 10);
  metrics.key_without_tokens = true;
  const QualityVerdict verdict =
      Judge(metrics, {.max_rmse = 0.25,
                      .min_centred_snr_db = 30,
                      .requested = {"max_rmse", "min_centred_snr_db"}});
  ASSERT_EQ(verdict.missed.size(), 2);
  EXPECT_EQ(verdict.missed[0].metric, "snr_db");
  EXPECT_EQ(verdict.missed[0].value, 10);
  EXPECT_EQ(verdict.missed[0].bound, "min_snr_db");
  EXPECT_EQ(verdict.missed[0].limit, 18);
  EXPECT_FALSE(verdict.missed[0].requested) << "a default";
  EXPECT_EQ(verdict.missed[1].metric, "centred_snr_db");
  EXPECT_EQ(verdict.missed[1].value, std::nullopt);
  EXPECT_EQ(verdict.missed[1].limit, 30);
  EXPECT_TRUE(verdict.missed[1].requested);
  EXPECT_TRUE(Judge(metrics, {.max_rmse = 0.25, .min_snr_db = 9}).passed);
}

TEST(Quality, ABoundOnWhatIsNotKnownDoesNotHold) {
  Metrics metrics = Sample(0.01, 40);
  metrics.cosine_similarity = 1;
  const QualityThresholds keys = {.min_centred_snr_db = -300};
  const QualityThresholds tokens = {.min_token_snr_db_p1 = -300};
  EXPECT_TRUE(Judge(metrics, keys).passed) << "does not apply, or is exact";
  metrics.value_without_tokens = true;
  EXPECT_TRUE(Judge(metrics, {}).passed) << "nobody asked";
  EXPECT_TRUE(Judge(metrics, keys).passed);
  EXPECT_FALSE(Judge(metrics, tokens).passed);
  metrics.token_snr_db_p1 = 40;
  EXPECT_FALSE(Judge(metrics, tokens).passed) << "of others among them";
  metrics.key_without_tokens = true;
  ASSERT_EQ(Judge(metrics, keys).violations.size(), 1);
  EXPECT_EQ(Judge(metrics, keys).violations[0],
            "centred_snr_db is not known for the shape of a key or value, so "
            "it is not above -300");
}

TEST(Quality, ThresholdsMustBeNumbers) {
  EXPECT_TRUE(ValidateThresholds({}).ok());
  EXPECT_FALSE(ValidateThresholds({.max_rmse = NAN}).ok());
  EXPECT_FALSE(ValidateThresholds({.max_error = 0}).ok());
  EXPECT_FALSE(ValidateThresholds({.min_snr_db = INFINITY}).ok());
  EXPECT_TRUE(ValidateThresholds({.min_snr_db = -5}).ok());
}

}  // namespace
}  // namespace kvcompress
