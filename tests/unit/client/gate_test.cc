// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "client/cli/gate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/cli/thresholds.h"

namespace kvcompress::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::TensorReport* AddTensor(const char* name, v1::TensorRole role, double rmse,
                            double snr_db, v1::CompressionReport* report) {
  v1::TensorReport* tensor = report->add_tensors();
  tensor->set_name(name);
  tensor->set_role(role);
  tensor->mutable_metrics()->set_rmse(rmse);
  tensor->mutable_metrics()->set_snr_db(snr_db);
  return tensor;
}

v1::CompressionReport Report() {
  v1::CompressionReport report;
  report.mutable_verdict()->set_passed(true);
  AddTensor("layer_0_key", v1::TENSOR_ROLE_KEY, 0.5, 12.25, &report);
  AddTensor("layer_0_value", v1::TENSOR_ROLE_VALUE, 0.25, 20, &report);
  return report;
}

v1::CompressOptions Options(const char* bounds) {
  v1::CompressOptions options;
  *options.mutable_thresholds() = *ParseThresholds(bounds);
  return options;
}

TEST(GateTest, JudgesEveryTensor) {
  v1::CompressionReport report = Report();
  EXPECT_TRUE(ApplyGate(Options("min_snr_db=12.2,max_rmse=0.6"), &report));
  EXPECT_TRUE(report.verdict().passed());
  EXPECT_FALSE(ApplyGate(Options("min_snr_db=12.25,max_rmse=0.2"), &report))
      << "above, not at";
  EXPECT_FALSE(report.verdict().passed());
  EXPECT_THAT(
      report.verdict().violations(),
      ElementsAre("rmse 0.5 of tensor \"layer_0_key\" is not below 0.2: it "
                  "misses by 0.3",
                  "snr_db 12.25 of tensor \"layer_0_key\" is not above 12.25: "
                  "it misses by 0",
                  "rmse 0.25 of tensor \"layer_0_value\" is not below 0.2: it "
                  "misses by 0.05"));
}

TEST(GateTest, ARoleHasBoundsOfItsOwn) {
  v1::CompressionReport report = Report();
  v1::CompressOptions options = Options("max_rmse=0.3");
  EXPECT_TRUE(HasGate(options));
  *options.mutable_key_thresholds() = *ParseThresholds("max_rmse=0.6");
  EXPECT_TRUE(ApplyGate(options, &report));
  *options.mutable_value_thresholds() = *ParseThresholds("min_snr_db=25");
  EXPECT_FALSE(ApplyGate(options, &report));
  EXPECT_THAT(report.verdict().violations(),
              ElementsAre(HasSubstr("layer_0_value")));
}

TEST(GateTest, AnExactResultIsAboveEveryBound) {
  v1::CompressionReport report;
  report.add_tensors()->mutable_metrics()->set_cosine_similarity(1);
  EXPECT_TRUE(
      ApplyGate(Options("min_snr_db=1e9,min_centred_snr_db=1e9"), &report));
  EXPECT_FALSE(HasGate(v1::CompressOptions()));
}

TEST(GateTest, ABoundOnWhatIsNotKnownDoesNotHold) {
  v1::CompressionReport report = Report();
  const v1::CompressOptions options =
      Options("min_centred_snr_db=1,min_token_snr_db_p1=2");
  EXPECT_TRUE(ApplyGate(options, &report)) << "no error is nothing to know";
  for (v1::TensorReport& tensor : *report.mutable_tensors()) {
    tensor.mutable_metrics()->set_max_error(0.1);
  }
  v1::CompressionReport with_tokens = report;
  for (v1::TensorReport& tensor : *with_tokens.mutable_tensors()) {
    tensor.mutable_metrics()->set_first_token_rmse(0);
  }
  EXPECT_TRUE(ApplyGate(options, &with_tokens));
  EXPECT_FALSE(ApplyGate(options, &report));
  EXPECT_THAT(report.verdict().violations(),
              ElementsAre("centred_snr_db of tensor \"layer_0_key\" is not "
                          "known for its shape, so it is not above 1",
                          "token_snr_db_p1 of tensor \"layer_0_key\" is not "
                          "known for its shape, so it is not above 2",
                          "token_snr_db_p1 of tensor \"layer_0_value\" is not "
                          "known for its shape, so it is not above 2"));
}

TEST(GateTest, CountsWhatItDoesNotList) {
  v1::CompressionReport report;
  for (int i = 0; i < 30; ++i) {
    AddTensor("t", v1::TENSOR_ROLE_UNSPECIFIED, 1, 1, &report);
  }
  EXPECT_FALSE(ApplyGate(Options("max_rmse=0.1"), &report));
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
