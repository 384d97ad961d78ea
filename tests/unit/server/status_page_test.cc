// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "telemetry/status_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kvcompress/codec.h"
#include "telemetry/charts.h"
#include "telemetry/index_page.h"

namespace kvcompress {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(StatusPageTest, SaysHowTheServerIs) {
  StatusPage page;
  page.SetFact("listening on", "127.0.0.1:1");
  page.SetFact("listening on", "127.0.0.1:2");
  page.InFlightBytes(8 << 20);
  const std::string html =
      page.Render(true, absl::Now() + absl::Hours(50) + absl::Seconds(1));
  EXPECT_THAT(html, HasSubstr("<h1>kv-compressd: SERVING</h1>"));
  EXPECT_THAT(html, HasSubstr("<td>uptime</td><td>50h1s</td>"));
  EXPECT_THAT(html, HasSubstr("<td>listening on</td><td>127.0.0.1:2</td>"));
  EXPECT_THAT(html, Not(HasSubstr("127.0.0.1:1")));
  EXPECT_THAT(html, HasSubstr("<td>8.0 MiB</td>"));
  EXPECT_THAT(page.Render(false, absl::Now()), HasSubstr("NOT_SERVING</h1>"));
}

TEST(StatusPageTest, CountsCallsByMethod) {
  StatusPage page;
  for (int i = 0; i < 4; ++i) page.CallStarted(Method::kCompress);
  page.CallHandled({Method::kCompress, absl::StatusCode::kOk, 1.5});
  page.CallHandled({Method::kCompress, absl::StatusCode::kCancelled, 0.5});
  page.BytesReceived(Method::kCompress, 2048);
  page.BytesSent(Method::kCompress, 1024);
  EXPECT_THAT(page.Render(true, absl::Now()),
              HasSubstr("<td>Compress</td><td class=n>2</td><td class=n>1</td>"
                        "<td class=n>1</td><td class=n>1 s</td>"
                        "<td class=n>2.0 KiB</td><td class=n>1.0 KiB</td>"));
}

TEST(StatusPageTest, HasEveryCodec) {
  StatusPage page;
  CompressReport report;
  report.codec = "int4:64+zstd";
  report.elements = 1000;
  report.compressed_size = 500;
  for (const double snr : {21.0, 12.0, 30.0}) {
    report.metrics.snr_db = snr;
    page.Compressed(report);
  }
  const std::string html = page.Render(true, absl::Now());
  for (const Codec* codec : AllCodecs()) {
    EXPECT_THAT(html, HasSubstr(absl::StrCat("<td>", codec->traits().name)));
  }
  EXPECT_THAT(html,
              HasSubstr("<td>int4</td><td class=n>3</td><td class=n>4x</td>"
                        "<td class=n>4</td><td class=n>12.0 dB</td>"));
}

TEST(StatusPageTest, DrawsWhatThereIs) {
  StatusPage page;
  std::string html = page.Render(true, absl::Now());
  EXPECT_THAT(html, HasSubstr("</span> 0 failed in the last 5 minutes"));
  EXPECT_THAT(html, Not(HasSubstr("Compression ratio")));
  EXPECT_THAT(html, Not(HasSubstr("<rect")));

  page.SetMemoryBudget(16 << 20);
  page.InFlightBytes(4 << 20);
  page.InFlightBytes(-(4 << 20));
  for (const absl::StatusCode code :
       {absl::StatusCode::kOk, absl::StatusCode::kOk,
        absl::StatusCode::kInternal}) {
    page.CallHandled({Method::kCompress, code});
  }
  CompressReport report;
  report.codec = "int8";
  report.elements = 1000;
  report.compressed_size = 800;
  page.Compressed(report);
  report.tensors_failed = 1;
  page.Compressed(report);
  html = page.Render(true, absl::Now());
  EXPECT_THAT(
      html,
      HasSubstr("</span> 2 OK <span class=bad>&#9632;</span> 1 failed in "));
  EXPECT_THAT(html,
              HasSubstr("At most 4.0 MiB of the budget of 16.0 MiB, 25.0 %"));
  EXPECT_THAT(html, HasSubstr("</span> 1 did not since the start"));
  EXPECT_THAT(html, HasSubstr(">1 of 2</text>"));
  EXPECT_THAT(html, HasSubstr(">2.50x</text>"));
  EXPECT_THAT(html, HasSubstr("<rect class=bad"));
}

TEST(StatusPageTest, FitsAPhoneAndTheDark) {
  const std::string html = StatusPage().Render(true, absl::Now());
  EXPECT_THAT(html, HasSubstr("<meta name=viewport"));
  EXPECT_THAT(html, HasSubstr("prefers-color-scheme:dark"));
}

TEST(ChartsTest, ScalesAreRound) {
  EXPECT_EQ(RoundScale(0), 1);
  EXPECT_EQ(RoundScale(0.3), 0.5);
  EXPECT_EQ(RoundScale(1), 1);
  EXPECT_EQ(RoundScale(61), 100);
}

TEST(IndexPageTest, LinksToTheOtherPages) {
  const std::string html = IndexPage();
  for (const char* path : {"/statusz", "/metrics", "/healthz", "/livez"}) {
    EXPECT_THAT(html, HasSubstr(absl::StrCat("<a href=", path, ">", path)));
  }
}

TEST(StatusPageTest, KeepsTheLastErrors) {
  StatusPage page;
  const int many = StatusPage::kErrors + 5;
  for (int i = 0; i < many; ++i) {
    page.CallStarted(Method::kDecompress);
    page.CallHandled({Method::kDecompress,
                      absl::StatusCode::kDataLoss,
                      0.25,
                      "TRUNCATED",
                      {absl::StrCat("call-", i, "-"), ""}});
  }
  const std::string html = page.Render(true, absl::Now());
  EXPECT_THAT(html, HasSubstr("<td>DATA_LOSS</td><td>TRUNCATED</td>"
                              "<td>0.250 s</td><td>call-24-</td>"));
  EXPECT_THAT(html, HasSubstr("call-5-"));
  EXPECT_THAT(html, Not(HasSubstr("call-4-")));
}

TEST(StatusPageTest, EscapesWhateverItShows) {
  StatusPage page;
  page.SetFact("<name>", "a&b \"'");
  page.CallHandled({Method::kMeasure,
                    absl::StatusCode::kUnknown,
                    0,
                    "<script>alert(1)</script>",
                    {"<id>", "<trace>"}});
  const std::string html = page.Render(true, absl::Now());
  EXPECT_THAT(html, HasSubstr("&lt;name&gt;</td><td>a&amp;b &quot;&#39;</td>"));
  EXPECT_THAT(html, HasSubstr("&lt;script&gt;alert(1)&lt;/script&gt;"));
  for (const char* raw : {"<script", "<id>", "<trace>", "<name>"}) {
    EXPECT_THAT(html, Not(HasSubstr(raw)));
  }
}

}  // namespace
}  // namespace kvcompress
