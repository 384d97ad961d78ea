// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "telemetry/http.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"

namespace kvcompress {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

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
        HttpEndpoint::Start(
            ListenAddress{"127.0.0.1", 0, ""},
            {[] { return "page\n"; }, [this] { return up_; },
             [this] { return alive_; }, [] { return "<html>"; }, "<links>"});
    EXPECT_TRUE(endpoint.ok()) << endpoint.status();
    endpoint_ = *std::move(endpoint);
  }

  std::string Get(absl::string_view path) const {
    return Http(endpoint_->address(),
                absl::StrCat("GET ", path, " HTTP/1.0\r\n\r\n"));
  }

  bool up_ = false;
  bool alive_ = true;
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

TEST_F(HttpTest, LivezIsNotHealth) {
  EXPECT_THAT(Get("/livez"), AllOf(StartsWith("HTTP/1.1 200 OK\r\n"),
                                   EndsWith("\r\n\r\nALIVE\n")));
  alive_ = false;
  EXPECT_THAT(Get("/livez"),
              AllOf(StartsWith("HTTP/1.1 503 Service Unavailable\r\n"),
                    EndsWith("\r\n\r\nNOT_ALIVE\n")));
}

TEST_F(HttpTest, ThePageForPeopleBringsNothingAlong) {
  const std::string reply = Get("/statusz");
  EXPECT_THAT(reply, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(reply, HasSubstr("Content-Type: text/html; charset=utf-8\r\n"));
  EXPECT_THAT(reply, HasSubstr("Content-Security-Policy: default-src 'none';"));
  EXPECT_THAT(reply, HasSubstr("X-Content-Type-Options: nosniff\r\n"));
  EXPECT_THAT(reply, EndsWith("\r\n\r\n<html>"));
}

TEST_F(HttpTest, TheRootHasLinks) {
  const std::string reply = Get("/");
  EXPECT_THAT(reply, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(reply, HasSubstr("Content-Type: text/html; charset=utf-8\r\n"));
  EXPECT_THAT(reply, EndsWith("\r\n\r\n<links>"));
}

TEST_F(HttpTest, HeadHasNoBody) {
  const std::string reply =
      Http(endpoint_->address(), "HEAD /metrics HTTP/1.0\r\n\r\n");
  EXPECT_THAT(reply, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(reply, EndsWith("\r\n\r\n"));
}

TEST_F(HttpTest, AnythingElseIsNotFound) {
  for (const char* path : {"//", "/metrics/", "/metricsx", "/x", "/healthz/x",
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

}  // namespace
}  // namespace kvcompress
