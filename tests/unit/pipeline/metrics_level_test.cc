// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// What is left out of the metrics changes nothing else.

#include <gtest/gtest.h>

#include "kvcompress/error.h"
#include "support/safetensors_file.h"

namespace kvcompress {
namespace {

using testing::CompressFile;

std::string File() {
  return testing::MakeFile({{{.name = "layer_0_key",
                              .dtype = DType::kBF16,
                              .shape = {1, 2, 300, 64}},
                             testing::RandomBytes(DType::kBF16, 38400, 3)}});
}

TEST(MetricsLevelTest, BasicLeavesOutTokens) {
  for (const char* codec : {"int4", "ecsq", "klt:high", "auto", "int8+zstd"}) {
    SCOPED_TRACE(codec);
    const auto full = CompressFile(File(), {.codec = codec});
    const auto basic =
        CompressFile(File(), {.codec = codec, .metrics = MetricsLevel::kBasic});
    ASSERT_TRUE(full.ok() && basic.ok());
    EXPECT_EQ(basic->artefact, full->artefact);
    EXPECT_TRUE(full->report.metrics.centred_snr_db);
    for (const Metrics& metrics :
         {basic->report.metrics, basic->report.tensors[0].metrics}) {
      EXPECT_EQ(metrics.rmse, full->report.metrics.rmse);
      EXPECT_EQ(metrics.snr_db, full->report.metrics.snr_db);
      EXPECT_FALSE(metrics.centred_snr_db);
      EXPECT_FALSE(metrics.token_snr_db_p1);
      EXPECT_FALSE(metrics.first_token_rmse);
    }
    EXPECT_EQ(basic->report.verdict.passed, full->report.verdict.passed);
  }
}

TEST(MetricsLevelTest, BasicTakesNoBoundOnWhatItLeavesOut) {
  CompressOptions options = {.codec = "int4", .metrics = MetricsLevel::kBasic};
  options.key_thresholds = QualityThresholds{.min_token_snr_db_p1 = 5};
  const absl::Status status = CompressFile(File(), options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(GetErrorDetail(status)->reason, "THRESHOLD_NEEDS_FULL_METRICS");
  options.metrics = MetricsLevel::kFull;
  EXPECT_TRUE(CompressFile(File(), options).ok());
}

}  // namespace
}  // namespace kvcompress
