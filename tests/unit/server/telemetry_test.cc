// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "kvcompress/codec.h"
#include "telemetry/metrics.h"

namespace kvcompress {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// The value of a series, written as on the page; NaN when it is not there.
double Value(const ServerMetrics& metrics, absl::string_view series) {
  const std::string page = metrics.Render();
  for (absl::string_view line : absl::StrSplit(page, '\n')) {
    double value = 0;
    if (absl::ConsumePrefix(&line, series) && absl::ConsumePrefix(&line, " ") &&
        absl::SimpleAtod(line, &value)) {
      return value;
    }
  }
  return std::numeric_limits<double>::quiet_NaN();
}

CompressReport Report(const std::string& codec) {
  CompressReport report;
  report.codec = codec;
  report.elements = 64;
  report.compression_ratio = 3.8;
  report.metrics.rmse = 0.02;
  report.metrics.snr_db = 25;
  report.metrics.cosine_similarity = 0.9991;
  report.verdict.level = QualityLevel::kAcceptable;
  return report;
}

TEST(MetricsTest, CountsACall) {
  ServerMetrics metrics;
  metrics.CallStarted(Method::kDecompress);
  metrics.BytesReceived(Method::kDecompress, 10);
  metrics.BytesReceived(Method::kDecompress, 5);
  metrics.BytesSent(Method::kDecompress, 7);
  metrics.CallHandled({Method::kDecompress, absl::StatusCode::kDataLoss, 0.02});
  metrics.IntegrityFailure("TRUNCATED");
  constexpr char kLabels[] =
      "grpc_method=\"Decompress\",grpc_service=\"kvcompress.v1."
      "CompressionService\",grpc_type=\"bidi_stream\"}";
  EXPECT_EQ(Value(metrics, absl::StrCat("grpc_server_started_total{", kLabels)),
            1);
  EXPECT_EQ(Value(metrics, absl::StrCat("grpc_server_handled_total{grpc_code="
                                        "\"DataLoss\",",
                                        kLabels)),
            1);
  EXPECT_EQ(Value(metrics,
                  absl::StrCat("grpc_server_handling_seconds_sum{", kLabels)),
            0.02);
  const auto own = [&](absl::string_view name) {
    return Value(metrics,
                 absl::StrCat("kvcompress_", name, "{method=\"Decompress\"}"));
  };
  EXPECT_EQ(own("requests_total"), 1);
  EXPECT_EQ(own("input_bytes_total"), 15);
  EXPECT_EQ(own("output_bytes_total"), 7);
  EXPECT_EQ(own("request_duration_seconds_count"), 1);
  EXPECT_EQ(Value(metrics,
                  "kvcompress_errors_total{code=\"DATA_LOSS\",method="
                  "\"Decompress\"}"),
            1);
  EXPECT_EQ(Value(metrics,
                  "kvcompress_integrity_failures_total{reason="
                  "\"TRUNCATED\"}"),
            1);
}

TEST(MetricsTest, CountsWarningsByCode) {
  ServerMetrics metrics;
  const auto counted = [&] {
    return Value(metrics, "kvcompress_warnings_total{code=\"NO_ROLES\"}");
  };
  EXPECT_EQ(counted(), 0);
  metrics.Warned({}, {.code = "NO_ROLES", .message = "", .tensor = ""});
  metrics.Warned({}, {.code = "unknown", .message = "", .tensor = ""});
  EXPECT_EQ(counted(), 1);
}

TEST(MetricsTest, CodesThatAreNotCanonicalCountAsUnknown) {
  ServerMetrics metrics;
  metrics.CallHandled({Method::kMeasure, static_cast<absl::StatusCode>(99)});
  EXPECT_EQ(Value(metrics,
                  "kvcompress_errors_total{code=\"UNKNOWN\",method="
                  "\"Measure\"}"),
            1);
}

TEST(MetricsTest, RejectionsFollowTheCode) {
  ServerMetrics metrics;
  metrics.CallHandled({Method::kCompress, absl::StatusCode::kOutOfRange});
  metrics.CallHandled({Method::kCompress, absl::StatusCode::kOk});
  const auto rejected = [&](absl::string_view reason) {
    return Value(metrics,
                 absl::StrCat("kvcompress_requests_rejected_total{reason=\"",
                              reason, "\"}"));
  };
  EXPECT_EQ(rejected("limit"), 1);
  EXPECT_EQ(rejected("budget"), 0);
  EXPECT_EQ(rejected("draining"), 0);
  metrics.CallHandled(
      {Method::kCompress, absl::StatusCode::kResourceExhausted});
  metrics.CallHandled({Method::kCompress, absl::StatusCode::kUnavailable});
  EXPECT_EQ(rejected("budget"), 1);
  EXPECT_EQ(rejected("draining"), 1);
}

TEST(MetricsTest, BytesInFlightGoUpAndDown) {
  ServerMetrics metrics;
  metrics.InFlightBytes(100);
  metrics.InFlightBytes(-40);
  EXPECT_EQ(Value(metrics, "kvcompress_inflight_bytes"), 60);
  metrics.InFlightBytes(-60);
  EXPECT_EQ(Value(metrics, "kvcompress_inflight_bytes"), 0);
}

// A rate sees no step from nothing to 1. So what alerts count is 0 first.
TEST(MetricsTest, WhatAlertsCountIsThereFromTheStart) {
  const ServerMetrics metrics;
  for (const absl::string_view reason : kIntegrityReasons) {
    EXPECT_EQ(Value(metrics,
                    absl::StrCat("kvcompress_integrity_failures_total{reason="
                                 "\"",
                                 reason, "\"}")),
              0);
  }
  for (const char* code :
       {"INTERNAL", "UNKNOWN", "UNAVAILABLE", "RESOURCE_EXHAUSTED"}) {
    EXPECT_EQ(Value(metrics, absl::StrCat("kvcompress_errors_total{code=\"",
                                          code, "\",method=\"Compress\"}")),
              0);
  }
}

TEST(MetricsTest, ACodecHasAllItsSeriesFromItsFirstUseOn) {
  ServerMetrics metrics;
  EXPECT_THAT(metrics.Render(), Not(HasSubstr("codec=")));
  CompressReport exact = Report("lossless");
  exact.metrics.snr_db.reset();
  metrics.Compressed(exact);
  const auto of_codec = [&](absl::string_view series) {
    return Value(metrics, absl::StrCat("kvcompress_", series, "}"));
  };
  EXPECT_EQ(of_codec("snr_decibels_bucket{codec=\"lossless\",le=\"18\""), 0);
  EXPECT_EQ(of_codec("compression_ratio_count{codec=\"lossless\""), 1);
  EXPECT_EQ(of_codec("saved_bytes_total{codec=\"lossless\""), 0);
  EXPECT_EQ(of_codec("quality_total{codec=\"lossless\",level=\"POOR\""), 0);
  EXPECT_EQ(of_codec("verdicts_total{codec=\"lossless\",verdict=\"failed\""),
            0);
  EXPECT_THAT(metrics.Render(), Not(HasSubstr("int4")));
  EXPECT_THAT(metrics.Render(), Not(HasSubstr("codec_seconds")));
}

TEST(MetricsTest, BytesSavedAddUp) {
  ServerMetrics metrics;
  metrics.Saved("int4:64+zstd", 100);
  metrics.Saved("int4", 20);
  metrics.Saved("mystery", 5);
  EXPECT_EQ(Value(metrics, "kvcompress_saved_bytes_total{codec=\"int4\"}"),
            120);
  EXPECT_THAT(metrics.Render(), Not(HasSubstr("mystery")));
}

TEST(MetricsTest, KeysAndTokensHaveSeriesOfTheirOwn) {
  ServerMetrics metrics;
  CompressReport report = Report("int4+zstd:64");
  report.bits_per_value = 4.25;
  report.metrics.centred_snr_db = 11;
  report.metrics.token_snr_db_p1 = 7.5;
  report.metrics.first_token_rmse = 0.125;
  report.tensors.resize(2);
  report.tensors[1].metrics.snr_db = 9;
  report.worst_tensor = 1;
  metrics.Compressed(report);
  const auto sum = [&](absl::string_view name) {
    return Value(metrics,
                 absl::StrCat("kvcompress_", name, "_sum{codec=\"int4\"}"));
  };
  EXPECT_EQ(sum("value_bytes"), 4.25 / 8);
  EXPECT_EQ(sum("worst_tensor_snr_decibels"), 9);
  EXPECT_EQ(sum("centred_snr_decibels"), 11);
  EXPECT_EQ(sum("token_snr_p1_decibels"), 7.5);
  EXPECT_EQ(sum("first_token_rmse"), 0.125);
}

TEST(MetricsTest, QualityIsCountedByCodec) {
  ServerMetrics metrics;
  metrics.Compressed(Report("int4:64"));
  metrics.CodecTime("int4", Stage::kEncode, 0.25);
  EXPECT_EQ(Value(metrics, "kvcompress_compression_ratio_sum{codec=\"int4\"}"),
            3.8);
  EXPECT_EQ(Value(metrics, "kvcompress_snr_decibels_sum{codec=\"int4\"}"), 25);
  EXPECT_EQ(Value(metrics, "kvcompress_rmse_sum{codec=\"int4\"}"), 0.02);
  EXPECT_EQ(Value(metrics,
                  "kvcompress_cosine_similarity_bucket{codec=\"int4\","
                  "le=\"0.999\"}"),
            0);
  EXPECT_EQ(Value(metrics,
                  "kvcompress_cosine_similarity_bucket{codec=\"int4\","
                  "le=\"0.9997\"}"),
            1);
  EXPECT_EQ(Value(metrics,
                  "kvcompress_quality_total{codec=\"int4\",level="
                  "\"ACCEPTABLE\"}"),
            1);
  EXPECT_EQ(Value(metrics,
                  "kvcompress_codec_seconds_sum{codec=\"int4\",stage="
                  "\"encode\"}"),
            0.25);
  CompressReport failed = Report("int4:64");
  failed.tensors_failed = 1;
  metrics.Compressed(failed);
  for (const char* verdict : {"passed", "failed"}) {
    const auto labels = absl::StrCat("codec=\"int4\",verdict=\"", verdict);
    EXPECT_EQ(Value(metrics,
                    absl::StrCat("kvcompress_verdicts_total{", labels, "\"}")),
              1);
  }
}

TEST(MetricsTest, ExactCachesHaveNoSnrAndEmptyOnesNothing) {
  ServerMetrics metrics;
  CompressReport exact = Report("int4:64");
  exact.metrics.snr_db.reset();
  metrics.Compressed(exact);
  CompressReport empty = Report("int4:64");
  empty.elements = 0;
  metrics.Compressed(empty);
  EXPECT_EQ(Value(metrics, "kvcompress_snr_decibels_count{codec=\"int4\"}"), 0);
  EXPECT_EQ(Value(metrics, "kvcompress_rmse_count{codec=\"int4\"}"), 1);
}

// Some fractions come out as 0.9995000000000001, which no query would match.
TEST(MetricsTest, BoundsOfBucketsAreShortNumbers) {
  ServerMetrics metrics;
  metrics.Compressed(Report("int4"));
  metrics.CodecTime("int4", Stage::kEncode, 1);
  metrics.CallHandled({Method::kCompress, absl::StatusCode::kOk});
  const std::string page = metrics.Render();
  for (absl::string_view rest = page;;) {
    const size_t label = rest.find("le=\"");
    if (label == absl::string_view::npos) break;
    rest.remove_prefix(label + 4);
    EXPECT_LE(rest.find('"'), 8) << rest.substr(0, 20);
  }
}

// Labels are closed: nothing that is passed in makes a series.
TEST(MetricsTest, UnknownNamesMakeNoSeries) {
  ServerMetrics metrics;
  metrics.Compressed(Report("mystery:1"));
  metrics.CodecTime("mystery", Stage::kDecode, 1);
  metrics.IntegrityFailure("MYSTERY");
  EXPECT_THAT(metrics.Render(), Not(HasSubstr("ystery")));
  EXPECT_THAT(metrics.Render(), Not(HasSubstr("MYSTERY")));
}

TEST(MetricsTest, ProcessMetricsAreThoseOfThisProcess) {
  const ServerMetrics metrics;
  EXPECT_GT(Value(metrics, "process_resident_memory_bytes"), 1 << 20);
  EXPECT_GE(Value(metrics, "process_open_fds"), 3);
  EXPECT_GT(Value(metrics, "process_start_time_seconds"), 1.7e9);
  EXPECT_GE(Value(metrics, "process_cpu_seconds_total"), 0);
}

}  // namespace
}  // namespace kvcompress
