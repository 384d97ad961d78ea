// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "telemetry/http_request.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "absl/strings/str_cat.h"

namespace kvcompress {
namespace {

using ReaderState = HttpRequestReader::State;

constexpr char kGet[] =
    "GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n\r\n";

HttpRequestReader ReadRequest(absl::string_view bytes) {
  HttpRequestReader reader;
  reader.Add(bytes);
  return reader;
}

// 0 when it was not refused.
int RefusalOf(absl::string_view bytes) {
  const HttpRequestReader reader = ReadRequest(bytes);
  return reader.state() == ReaderState::kRefused ? reader.refusal() : 0;
}

TEST(HttpRequestTest, TakesTheMethodAndThePath) {
  const HttpRequestReader reader = ReadRequest(kGet);
  ASSERT_EQ(reader.state(), ReaderState::kComplete);
  EXPECT_EQ(reader.request().method, HttpMethod::kGet);
  EXPECT_EQ(reader.request().path, "/metrics");
  EXPECT_FALSE(reader.excess());
}

TEST(HttpRequestTest, TheTargetMayHaveASchemeAndAHost) {
  const auto path = [](absl::string_view target) {
    return ReadRequest(absl::StrCat("GET ", target, " HTTP/1.0\r\n\r\n"))
        .request()
        .path;
  };
  EXPECT_EQ(path("http://host:9464/healthz?a"), "/healthz");
  EXPECT_EQ(path("http://host"), "");
  EXPECT_EQ(path("http://host?/healthz"), "");
  EXPECT_EQ(path("/http://host/healthz"), "/http://host/healthz");
  EXPECT_EQ(path("*"), "*");
}

TEST(HttpRequestTest, PiecesOfAnySizeAreTheSameRequest) {
  const std::string request = kGet;
  for (size_t cut = 1; cut < request.size(); ++cut) {
    HttpRequestReader reader;
    EXPECT_EQ(reader.Add(request.substr(0, cut)), ReaderState::kReading) << cut;
    EXPECT_EQ(reader.Add(request.substr(cut)), ReaderState::kComplete) << cut;
    EXPECT_EQ(reader.request().path, "/metrics");
    EXPECT_FALSE(reader.excess());
  }
  HttpRequestReader reader;
  for (const char byte : request) reader.Add({&byte, 1});
  EXPECT_EQ(reader.state(), ReaderState::kComplete);
}

TEST(HttpRequestTest, LinesMayEndWithoutCarriageReturn) {
  EXPECT_EQ(ReadRequest("GET / HTTP/1.1\nHost: a\n\n").state(),
            ReaderState::kComplete);
  EXPECT_EQ(ReadRequest("\r\n\nGET / HTTP/1.1\nHost: a\r\n\n").state(),
            ReaderState::kComplete);
}

TEST(HttpRequestTest, WhatFollowsTheHeadIsExcess) {
  HttpRequestReader reader = ReadRequest(absl::StrCat(kGet, "GET"));
  EXPECT_EQ(reader.state(), ReaderState::kComplete);
  EXPECT_TRUE(reader.excess());
  reader = ReadRequest(kGet);
  EXPECT_EQ(reader.Add("x"), ReaderState::kComplete);
  EXPECT_TRUE(reader.excess());
}

TEST(HttpRequestTest, MalformedRequestsAreRefused) {
  for (const char* request : {
           "GET /\r\n\r\n",                         // HTTP/0.9
           "GET  HTTP/1.1\r\nHost: a\r\n\r\n",      // no target
           "GET / x HTTP/1.1\r\nHost: a\r\n\r\n",   // two targets
           "GET /\tx HTTP/1.1\r\nHost: a\r\n\r\n",  // a tab in it
           "G(T / HTTP/1.1\r\nHost: a\r\n\r\n",     // no token
           "GET / HTTP/1.10\r\nHost: a\r\n\r\n",    // no version
           "GET / http/1.1\r\nHost: a\r\n\r\n",     // the same
           "GET / HTTP/1.1\r\n\r\n",                // no host
           "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
           "GET / HTTP/1.1\r\nHost: a\r\nno colon\r\n\r\n",
           "GET / HTTP/1.1\r\nHost : a\r\n\r\n",       // a space before it
           "GET / HTTP/1.1\r\nHost: a\r\n b\r\n\r\n",  // a folded line
           "GET / HTTP/1.1\r\nHost: a\rb\r\n\r\n",     // a bare CR
           "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
           "GET / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n",
           "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n"
           "Content-Length: 00\r\n\r\n",
       }) {
    EXPECT_EQ(RefusalOf(request), 400) << request;
  }
  constexpr char kNul[] = "GET / HTTP/1.0\r\nA: x\0y\r\n\r\n";
  EXPECT_EQ(RefusalOf({kNul, sizeof(kNul) - 1}), 400);
  EXPECT_EQ(RefusalOf("GET / HTTP/2.0\r\n\r\n"), 505);
}

TEST(HttpRequestTest, AnotherProtocolIsRefusedByItsFirstByte) {
  EXPECT_EQ(RefusalOf("\x16\x03\x01"), 400);  // TLS
  EXPECT_EQ(RefusalOf("P"), 0);
}

TEST(HttpRequestTest, BodiesAreRefused) {
  const auto with = [](absl::string_view method, absl::string_view field) {
    return RefusalOf(
        absl::StrCat(method, " / HTTP/1.1\r\nHost: a\r\n", field, "\r\n\r\n"));
  };
  EXPECT_EQ(with("GET", "Content-Length: 0"), 0);
  EXPECT_EQ(with("GET", "Content-Length: 1"), 413);
  EXPECT_EQ(with("GET", "content-length: 99999999999999999999999"), 413);
  EXPECT_EQ(with("HEAD", "Transfer-Encoding: chunked"), 413);
  // For these the answer is that the method is not served.
  EXPECT_EQ(with("POST", "Content-Length: 1"), 0);
}

TEST(HttpRequestTest, TheHeadIsBounded) {
  const std::string start = "GET / HTTP/1.1\r\nHost: a\r\nX: ";
  const size_t room = HttpRequestReader::kMaxHeadBytes - start.size() - 4;
  EXPECT_EQ(ReadRequest(absl::StrCat(start, std::string(room, 'x'), "\r\n\r\n"))
                .state(),
            ReaderState::kComplete);
  EXPECT_EQ(
      RefusalOf(absl::StrCat(start, std::string(room + 1, 'x'), "\r\n\r\n")),
      431);
  EXPECT_EQ(RefusalOf(absl::StrCat("GET /", std::string(1 << 20, 'x'))), 414);
  HttpRequestReader reader;
  size_t taken = 0;
  while (reader.Add("x") == ReaderState::kReading) ++taken;
  EXPECT_EQ(taken, HttpRequestReader::kMaxHeadBytes - 1);
}

// Whatever comes, in whatever pieces, has the same result.
TEST(HttpRequestTest, DamagedRequestsDoNotDependOnTheirPieces) {
  std::mt19937 random(20261123);
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes = kGet;
    for (int damages = 1 + round % 3; damages > 0; --damages) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    const HttpRequestReader whole = ReadRequest(bytes);
    HttpRequestReader pieces;
    for (size_t at = 0; at < bytes.size();) {
      const size_t size = 1 + random() % 16;
      pieces.Add(absl::string_view(bytes).substr(at, size));
      at += size;
    }
    ASSERT_EQ(pieces.state(), whole.state()) << bytes;
    ASSERT_EQ(pieces.refusal(), whole.refusal()) << bytes;
    ASSERT_EQ(pieces.request().path, whole.request().path) << bytes;
  }
}

}  // namespace
}  // namespace kvcompress
