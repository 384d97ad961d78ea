// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmath>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "kvcompress/codec.h"
#include "telemetry/call_log.h"
#include "telemetry/http.h"
#include "telemetry/logging.h"
#include "telemetry/metrics.h"

namespace kvcompress {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

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
  metrics.CallHandled(Method::kDecompress, absl::StatusCode::kDataLoss, 0.02);
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

TEST(MetricsTest, CodesThatAreNotCanonicalCountAsUnknown) {
  ServerMetrics metrics;
  metrics.CallHandled(Method::kMeasure, static_cast<absl::StatusCode>(99), 0);
  EXPECT_EQ(Value(metrics,
                  "kvcompress_errors_total{code=\"UNKNOWN\",method="
                  "\"Measure\"}"),
            1);
}

TEST(MetricsTest, RejectionsFollowTheCode) {
  ServerMetrics metrics;
  metrics.CallHandled(Method::kCompress, absl::StatusCode::kOutOfRange, 0);
  metrics.CallHandled(Method::kCompress, absl::StatusCode::kOk, 0);
  const auto rejected = [&](absl::string_view reason) {
    return Value(metrics,
                 absl::StrCat("kvcompress_requests_rejected_total{reason=\"",
                              reason, "\"}"));
  };
  EXPECT_EQ(rejected("limit"), 1);
  EXPECT_EQ(rejected("budget"), 0);
  EXPECT_EQ(rejected("draining"), 0);
  metrics.CallHandled(Method::kCompress, absl::StatusCode::kResourceExhausted,
                      0);
  metrics.CallHandled(Method::kCompress, absl::StatusCode::kUnavailable, 0);
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

TEST(MetricsTest, EveryCodecHasSeriesFromTheStart) {
  const ServerMetrics metrics;
  for (const Codec* codec : AllCodecs()) {
    const std::string label =
        absl::StrCat("codec=\"", codec->traits().name, "\"");
    for (const char* name :
         {"compression_ratio", "snr_decibels", "cosine_similarity", "rmse"}) {
      EXPECT_EQ(Value(metrics,
                      absl::StrCat("kvcompress_", name, "_count{", label, "}")),
                0);
    }
    for (const char* stage : {"encode", "decode"}) {
      EXPECT_EQ(Value(metrics, absl::StrCat("kvcompress_codec_seconds_count{",
                                            label, ",stage=\"", stage, "\"}")),
                0);
    }
  }
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
  EXPECT_EQ(Value(metrics, "kvcompress_quality_total{level=\"ACCEPTABLE\"}"),
            1);
  EXPECT_EQ(Value(metrics,
                  "kvcompress_codec_seconds_sum{codec=\"int4\",stage="
                  "\"encode\"}"),
            0.25);
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
  const std::string page = ServerMetrics().Render();
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

// The reply to a request, whole; empty when nobody answers.
std::string Http(const ListenAddress& address, absl::string_view request) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in target = {};
  target.sin_family = AF_INET;
  target.sin_port = htons(address.port);
  inet_pton(AF_INET, "127.0.0.1", &target.sin_addr);
  std::string reply;
  if (connect(fd, reinterpret_cast<const sockaddr*>(&target), sizeof(target)) ==
      0) {
    EXPECT_EQ(write(fd, request.data(), request.size()),
              static_cast<ssize_t>(request.size()));
    char buffer[4096];
    for (ssize_t n; (n = read(fd, buffer, sizeof(buffer))) > 0;) {
      reply.append(buffer, static_cast<size_t>(n));
    }
  }
  close(fd);
  return reply;
}

class HttpTest : public ::testing::Test {
 protected:
  HttpTest() {
    absl::StatusOr<std::unique_ptr<HttpEndpoint>> endpoint =
        HttpEndpoint::Start(ListenAddress{"127.0.0.1", 0, ""},
                            {[] { return "page\n"; }, [this] { return up_; }});
    EXPECT_TRUE(endpoint.ok()) << endpoint.status();
    endpoint_ = *std::move(endpoint);
  }

  std::string Get(absl::string_view path) const {
    return Http(endpoint_->address(),
                absl::StrCat("GET ", path, " HTTP/1.0\r\n\r\n"));
  }

  bool up_ = false;
  std::unique_ptr<HttpEndpoint> endpoint_;
};

TEST_F(HttpTest, ServesThePage) {
  const std::string reply = Get("/metrics");
  EXPECT_THAT(reply, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(reply, HasSubstr("Content-Type: text/plain; version=0.0.4; "
                               "charset=utf-8\r\n"));
  EXPECT_THAT(reply, HasSubstr("Content-Length: 5\r\n"));
  EXPECT_THAT(reply, EndsWith("\r\n\r\npage\n"));
}

TEST_F(HttpTest, HealthFollowsTheServer) {
  EXPECT_THAT(Get("/healthz"), StartsWith("HTTP/1.1 503 "));
  EXPECT_THAT(Get("/healthz"), EndsWith("\r\n\r\nNOT_SERVING\n"));
  up_ = true;
  EXPECT_THAT(Get("/healthz"), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(Get("/healthz"), EndsWith("\r\n\r\nSERVING\n"));
}

TEST_F(HttpTest, HeadHasNoBody) {
  const std::string reply =
      Http(endpoint_->address(), "HEAD /metrics HTTP/1.0\r\n\r\n");
  EXPECT_THAT(reply, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(reply, EndsWith("\r\n\r\n"));
}

TEST_F(HttpTest, AnythingElseIsNotFound) {
  for (const char* path : {"/", "/metrics/", "/metricsx", "/x", "/healthz/x",
                           "/../metrics/..", "/%2e%2e/etc/passwd"}) {
    EXPECT_THAT(Get(path), StartsWith("HTTP/1.1 404 ")) << path;
  }
}

TEST_F(HttpTest, AddressInUseIsAClearError) {
  const absl::Status status =
      HttpEndpoint::Start(endpoint_->address(), {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(status.message(), absl::StrCat("cannot serve metrics on ",
                                           endpoint_->address().ToString(),
                                           ": Address already in use"));
}

TEST_F(HttpTest, NobodyAnswersAfterwards) {
  const ListenAddress address = endpoint_->address();
  endpoint_.reset();
  EXPECT_EQ(Http(address, "GET /metrics HTTP/1.0\r\n\r\n"), "");
}

// Collects what the default logger writes while a test runs.
class LogTest : public ::testing::Test {
 protected:
  LogTest() : before_(spdlog::default_logger()) {}
  ~LogTest() override { spdlog::set_default_logger(before_); }

  void Collect(LogFormat format) {
    auto logger = std::make_shared<spdlog::logger>(
        "test", std::make_shared<spdlog::sinks::ostream_sink_mt>(lines_));
    logger->set_formatter(NewLogFormatter(format));
    logger->set_level(spdlog::level::debug);
    spdlog::set_default_logger(std::move(logger));
  }

  const std::shared_ptr<spdlog::logger> before_;
  std::ostringstream lines_;
};

TEST_F(LogTest, JsonStaysValidWhateverTheMessage) {
  Collect(LogFormat::kJson);
  constexpr char kNasty[] =
      "quote \" slash \\ line\nnul \0 tab\t bad \xff\xfe %v";
  const std::string nasty(kNasty, sizeof(kNasty) - 1);
  spdlog::warn("{}", nasty);
  const nlohmann::json line = nlohmann::json::parse(lines_.str());
  EXPECT_EQ(line.size(), 3);
  EXPECT_EQ(line["level"], "warning");
  EXPECT_THAT(line["message"].get<std::string>(),
              HasSubstr("quote \" slash \\ line\nnul "));
  EXPECT_THAT(line["time"].get<std::string>(), EndsWith("Z"));
  EXPECT_EQ(lines_.str().find('\n'), lines_.str().size() - 1);
}

TEST_F(LogTest, TextStaysOnOneLine) {
  Collect(LogFormat::kText);
  spdlog::info("{}", "first\nsecond\r\x1b[31m");
  EXPECT_THAT(lines_.str(),
              EndsWith("Z info first\\x0asecond\\x0d\\x1b[31m\n"));
}

TEST_F(LogTest, CallsAreLoggedByWhoShouldLook) {
  Collect(LogFormat::kText);
  ServerMetrics metrics;
  CallLog log(&metrics);
  log.CallStarted(Method::kCompress);
  log.CallHandled(Method::kCompress, absl::StatusCode::kOk, 0.5);
  log.CallHandled(Method::kMeasure, absl::StatusCode::kInvalidArgument, 0);
  log.CallHandled(Method::kDecompress, absl::StatusCode::kDataLoss, 0);
  EXPECT_THAT(lines_.str(),
              HasSubstr("debug Compress ended with OK after 0.500000 s"));
  EXPECT_THAT(lines_.str(), HasSubstr("info Measure ended with INVALID_"));
  EXPECT_THAT(lines_.str(), HasSubstr("warning Decompress ended with DATA_L"));
  EXPECT_EQ(Value(metrics, "kvcompress_requests_total{method=\"Compress\"}"),
            1);
}

}  // namespace
}  // namespace kvcompress
