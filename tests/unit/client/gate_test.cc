// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "client/cli/gate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/cli/thresholds.h"

namespace kvcompress::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::MissedBound* AddMissed(const char* tensor, const char* metric,
                           const char* bound, double limit,
                           v1::CompressionReport* report) {
  v1::TensorReport* const of = report->add_tensors();
  of->set_name(tensor);
  v1::MissedBound* const missed = of->mutable_verdict()->add_missed();
  missed->set_metric(metric);
  missed->set_bound(bound);
  missed->set_limit(limit);
  missed->set_requested(true);
  return missed;
}

v1::CompressionReport GateReport() {
  v1::CompressionReport report;
  report.mutable_verdict()->set_passed(true);
  report.add_tensors()->set_name("exact");
  return report;
}

TEST(GateTest, JudgesEveryTensor) {
  v1::CompressionReport report = GateReport();
  EXPECT_TRUE(ApplyGate(&report));
  EXPECT_TRUE(report.verdict().passed());
  AddMissed("layer_0_key", "rmse", "max_rmse", 0.2, &report)->set_value(0.5);
  AddMissed("layer_0_value", "snr_db", "min_snr_db", 12.25, &report)
      ->set_value(12.25);
  EXPECT_FALSE(ApplyGate(&report));
  EXPECT_FALSE(report.verdict().passed());
  EXPECT_THAT(
      report.verdict().violations(),
      ElementsAre("rmse 0.5 of tensor \"layer_0_key\" is not below 0.2: it "
                  "misses by 0.3",
                  "snr_db 12.25 of tensor \"layer_0_value\" is not above "
                  "12.25: it misses by 0"));
}

TEST(GateTest, DefaultsAreNoGate) {
  v1::CompressionReport report = GateReport();
  AddMissed("t", "rmse", "max_rmse", 0.2, &report)->set_requested(false);
  EXPECT_TRUE(ApplyGate(&report));
  EXPECT_TRUE(report.verdict().passed());
}

TEST(GateTest, AnyBoundOfARequestIsAGate) {
  v1::CompressOptions options;
  EXPECT_FALSE(HasGate(options));
  *options.mutable_value_thresholds() = *ParseThresholds("max_rmse=0.6");
  EXPECT_TRUE(HasGate(options));
}

TEST(GateTest, ABoundOnWhatIsNotKnownDoesNotHold) {
  v1::CompressionReport report = GateReport();
  AddMissed("layer_0_key", "centred_snr_db", "min_centred_snr_db", 1, &report);
  EXPECT_FALSE(ApplyGate(&report));
  EXPECT_THAT(report.verdict().violations(),
              ElementsAre("centred_snr_db of tensor \"layer_0_key\" is not "
                          "known for its shape, so it is not above 1"));
}

TEST(GateTest, CountsWhatItDoesNotList) {
  v1::CompressionReport report;
  for (int i = 0; i < 30; ++i) {
    AddMissed("t", "rmse", "max_rmse", 0.1, &report)->set_value(1);
  }
  EXPECT_FALSE(ApplyGate(&report));
  EXPECT_EQ(report.verdict().violations_size(), 21);
  EXPECT_EQ(report.verdict().violations(20), "and 10 more bounds are missed");
}

TEST(ThresholdsTest, AreNameAndValue) {
  EXPECT_EQ(ParseThresholds("max_error=0.25")->max_error(), 0.25);
  for (const char* wrong :
       {"", "max_error", "max_error=", "max_error=inf",
        "max_error=1,max_error=2", "snr=3", "max_error=1,"}) {
    EXPECT_FALSE(ParseThresholds(wrong).ok()) << wrong;
  }
  EXPECT_THAT(ParseThresholds("snr=3").status().message(),
              HasSubstr("min_token_snr_db_p1"));
}

}  // namespace
}  // namespace kvcompress::cli
