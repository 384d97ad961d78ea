// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "telemetry/call_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "telemetry/logging.h"
#include "telemetry/metrics.h"
#include "telemetry/observers.h"

namespace kvcompress {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kTraceparent[] =
    "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

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

TEST_F(LogTest, NamesOfACallAreMembersOfTheObject) {
  Collect(LogFormat::kJson);
  CallLog().CallHandled({Method::kCompress,
                         absl::StatusCode::kCancelled,
                         1,
                         "",
                         {"id-7", kTraceparent}});
  spdlog::info("of no call");
  std::istringstream lines(lines_.str());
  std::string line;
  std::getline(lines, line);
  const nlohmann::json call = nlohmann::json::parse(line);
  EXPECT_EQ(call["message"], "Compress ended with CANCELLED after 1.000000 s");
  EXPECT_EQ(call["request_id"], "id-7");
  EXPECT_EQ(call["traceparent"], kTraceparent);
  std::getline(lines, line);
  EXPECT_EQ(nlohmann::json::parse(line).size(), 3);
}

TEST_F(LogTest, CallsAreLoggedByWhoShouldLook) {
  Collect(LogFormat::kText);
  ServerMetrics metrics;
  CallLog log;
  Observers observers({&metrics, &log});
  observers.CallStarted(Method::kCompress);
  observers.CallHandled({Method::kCompress, absl::StatusCode::kOk, 0.5});
  observers.CallHandled({Method::kMeasure, absl::StatusCode::kInvalidArgument});
  observers.CallHandled({Method::kDecompress,
                         absl::StatusCode::kDataLoss,
                         0,
                         "TRUNCATED",
                         {"id-7", kTraceparent}});
  EXPECT_THAT(lines_.str(),
              HasSubstr("debug Compress ended with OK after 0.500000 s"));
  EXPECT_THAT(lines_.str(), HasSubstr("info Measure ended with INVALID_"));
  EXPECT_THAT(lines_.str(),
              EndsWith("warning Decompress ended with DATA_LOSS, TRUNCATED, "
                       "after 0.000000 s request_id=id-7 "
                       "traceparent=00-0af7651916cd43dd8448eb211c80319c-"
                       "b7ad6b7169203331-01\n"));
  EXPECT_THAT(metrics.Render(),
              HasSubstr("kvcompress_requests_total{method=\"Compress\"} 1\n"));
}

TEST_F(LogTest, AFloodOfCallsThatFailIsCountedAndHidesNoWarning) {
  Collect(LogFormat::kText);
  CallLog::Clock::time_point now{};
  CallLog log([&now] { return now; });
  const auto lines = [this] {
    const std::string all = lines_.str();
    return std::count(all.begin(), all.end(), '\n');
  };
  const CallEnd refused = {Method::kMeasure,
                           absl::StatusCode::kPermissionDenied};
  for (int i = 0; i < kMaxCallLines + 1234; ++i) log.CallHandled(refused);
  EXPECT_EQ(lines(), kMaxCallLines);
  log.CallHandled({Method::kDecompress, absl::StatusCode::kDataLoss});
  EXPECT_EQ(lines(), kMaxCallLines + 1);
  now += kCallInterval;
  log.CallHandled(refused);
  EXPECT_EQ(lines(), kMaxCallLines + 3);
  EXPECT_THAT(lines_.str(),
              HasSubstr("info 1234 more calls that failed were not logged\n"));
}

TEST_F(LogTest, WarningsOfReportsAreLoggedWithoutNamesOfTensors) {
  Collect(LogFormat::kText);
  CallLog::Clock::time_point now{};
  CallLog log([&now] { return now; });
  const Warning warning{
      .code = "NO_ROLES", .message = "none is known", .tensor = "secret"};
  log.Warned({"id-7", kTraceparent}, warning);
  EXPECT_THAT(lines_.str(),
              HasSubstr("warning NO_ROLES: none is known request_id=id-7"));
  for (int i = 0; i < kMaxReportLines + 4; ++i) log.Warned({}, warning);
  now += kCallInterval;
  log.Warned({}, warning);
  EXPECT_THAT(lines_.str(),
              HasSubstr("warning 5 more warnings of reports were not logged"));
  EXPECT_THAT(lines_.str(), Not(HasSubstr("secret")));
}

TEST(LineLimit, LetsAFewThroughAndCountsTheOthers) {
  LineLimit limit(kMaxLibraryLines, kLibraryInterval);
  LineLimit::Clock::time_point now{};
  uint64_t dropped = 0;
  for (int i = 0; i < kMaxLibraryLines; ++i) {
    EXPECT_TRUE(limit.Pass(now, &dropped));
  }
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(limit.Pass(now, &dropped));
  EXPECT_EQ(dropped, 0);
  now += kLibraryInterval;
  EXPECT_TRUE(limit.Pass(now, &dropped));
  EXPECT_EQ(dropped, 5);
  EXPECT_TRUE(limit.Pass(now, &dropped));
  EXPECT_EQ(dropped, 0);
}

}  // namespace
}  // namespace kvcompress
