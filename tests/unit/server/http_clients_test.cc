// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The HTTP endpoint and clients that do not behave as one would like.

#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "http_get.h"
#include "support/eventually.h"
#include "telemetry/http.h"

namespace kvcompress {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kAskMetrics[] = "GET /metrics HTTP/1.0\r\n\r\n";

// One end of a connection to an endpoint.
class RawClient {
 public:
  explicit RawClient(const ListenAddress& address)
      : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in target = {};
    target.sin_family = AF_INET;
    target.sin_port = htons(address.port);
    inet_pton(AF_INET, "127.0.0.1", &target.sin_addr);
    // An endpoint that does not answer fails a test instead of holding it up.
    const timeval patience = {.tv_sec = 20, .tv_usec = 0};
    setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience,
               sizeof(patience));
    EXPECT_EQ(connect(socket_.get(), reinterpret_cast<const sockaddr*>(&target),
                      sizeof(target)),
              0);
  }

  RawClient& Say(absl::string_view bytes) {
    EXPECT_EQ(send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
    return *this;
  }
  RawClient& CloseHalf() {
    shutdown(socket_.get(), SHUT_WR);
    return *this;
  }
  // Everything until the end of the connection.
  std::string Hear() {
    std::string all;
    char bytes[4096];
    for (ssize_t n = 0;
         (n = recv(socket_.get(), bytes, sizeof(bytes), 0)) > 0;) {
      all.append(bytes, static_cast<size_t>(n));
    }
    return all;
  }

 private:
  FileDescriptor socket_;
};

class HttpClientsTest : public ::testing::Test {
 protected:
  void Start(HttpOptions options = {}) {
    options.observer = {[](size_t) {}, [this](HttpClose) { ++closed_; }};
    absl::StatusOr<std::unique_ptr<HttpEndpoint>> endpoint =
        HttpEndpoint::Start(
            ListenAddress{"127.0.0.1", 0, ""},
            {[this] { return Render(); }, [] { return true; },
             [] { return true; }, [] { return std::string("<html>"); }},
            options);
    ASSERT_TRUE(endpoint.ok()) << endpoint.status();
    endpoint_ = *std::move(endpoint);
    // Sanitizers need a descriptor to check a virtual call, and none may be
    // left.
    address_ = endpoint_->address();
  }

  std::string Render() {
    const int number = ++renderings_;
    if (throws_) throw std::bad_alloc();
    if (hold_) go_.WaitForNotification();
    return absl::StrCat(std::string(padding_, 'x'), "page ", number, "\n");
  }

  RawClient Client() const { return RawClient(address_); }
  std::string Ask(absl::string_view request) const {
    return Client().Say(request).Hear();
  }
  bool Healthy() const {
    return absl::StartsWith(Ask("GET /healthz HTTP/1.0\r\n\r\n"),
                            "HTTP/1.1 200 ");
  }

  // A client may see the end before it is counted.
  void WaitUntilClosed(int connections) const {
    testing::Eventually([&] { return closed_ >= connections; });
    EXPECT_EQ(closed_, connections);
  }

  std::atomic<int> closed_ = 0;
  std::atomic<int> renderings_ = 0;
  std::atomic<bool> throws_ = false;
  std::atomic<size_t> padding_ = 0;
  std::atomic<bool> hold_ = false;
  absl::Notification go_;
  std::unique_ptr<HttpEndpoint> endpoint_;
  ListenAddress address_;
};

TEST_F(HttpClientsTest, OtherMethodsAreNotAllowed) {
  Start();
  for (const char* method : {"POST", "DELETE", "OPTIONS", "TRACE", "get"}) {
    EXPECT_THAT(Ask(absl::StrCat(method, " /healthz HTTP/1.0\r\n\r\n")),
                AllOf(StartsWith("HTTP/1.1 405 "),
                      HasSubstr("\r\nAllow: GET, HEAD\r\n")))
        << method;
  }
}

TEST_F(HttpClientsTest, RequestsThatAreNoneGetTheirStatus) {
  Start();
  EXPECT_THAT(Ask("nonsense\r\n\r\n"), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(Ask("\x16\x03\x01\x02"), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(Ask("GET / HTTP/2.0\r\n\r\n"), StartsWith("HTTP/1.1 505 "));
  WaitUntilClosed(3);
}

TEST_F(HttpClientsTest, WhatIsSentAfterARefusalDoesNotDestroyTheAnswer) {
  Start();
  EXPECT_THAT(Client()
                  .Say("GET / HTTP/1.0\r\nContent-Length: 200000\r\n\r\n")
                  .Say(std::string(200'000, 'x'))
                  .CloseHalf()
                  .Hear(),
              AllOf(StartsWith("HTTP/1.1 413 "), EndsWith("a body\n")));
  EXPECT_THAT(Client().Say(std::string(100'000, 'x')).CloseHalf().Hear(),
              AllOf(StartsWith("HTTP/1.1 414 "), EndsWith("too long\n")));
}

TEST_F(HttpClientsTest, OnlyTheFirstOfSeveralRequestsIsAnswered) {
  Start();
  EXPECT_THAT(
      Client().Say(absl::StrCat(kAskMetrics, kAskMetrics)).CloseHalf().Hear(),
      EndsWith("\r\n\r\npage 1\n"));
  EXPECT_EQ(renderings_, 1);
}

TEST_F(HttpClientsTest, AClientThatClosedItsHalfIsAnswered) {
  Start();
  EXPECT_THAT(Client().Say(kAskMetrics).CloseHalf().Hear(),
              EndsWith("page 1\n"));
}

TEST_F(HttpClientsTest, APageThatCannotBeMadeIs503AndTheNextOneIsMade) {
  Start();
  throws_ = true;
  EXPECT_THAT(Ask(kAskMetrics), StartsWith("HTTP/1.1 503 "));
  EXPECT_TRUE(Healthy());
  throws_ = false;
  EXPECT_THAT(Ask(kAskMetrics), EndsWith("page 2\n"));
}

TEST_F(HttpClientsTest, HealthThatCannotBeToldIsNotServing) {
  const auto endpoint =
      HttpEndpoint::Start(ListenAddress{"127.0.0.1", 0, ""},
                          {nullptr, []() -> bool { throw 1; }, nullptr});
  ASSERT_TRUE(endpoint.ok());
  EXPECT_THAT(RawClient((*endpoint)->address())
                  .Say("GET /healthz HTTP/1.0\r\n\r\n")
                  .Hear(),
              EndsWith("\r\n\r\nNOT_SERVING\n"));
}

TEST_F(HttpClientsTest, OneRenderingThatBeganLaterServesAllWhoWait) {
  Start();
  hold_ = true;
  RawClient first = Client();
  first.Say(kAskMetrics);
  EXPECT_TRUE(testing::Eventually([&] { return renderings_ > 0; }));
  std::vector<RawClient> others;
  for (int i = 0; i < 50; ++i) {
    others.push_back(Client());
    others.back().Say(kAskMetrics);
  }
  // Neither waits for a page. Health is reported as soon as it is asked for,
  // and the others may have to be read then. Whoever asks for what there is not
  // has a turn after those who came before, and in the round after such an
  // answer all of them have been read.
  EXPECT_TRUE(Healthy());
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(Ask("GET /none HTTP/1.0\r\n\r\n"), StartsWith("HTTP/1.1 404 "));
  }
  EXPECT_EQ(renderings_, 1);
  go_.Notify();
  // It may be given the later one, when that has ended too.
  EXPECT_THAT(first.Hear(), StartsWith("HTTP/1.1 200 "));
  for (RawClient& other : others) {
    EXPECT_THAT(other.Hear(), EndsWith("page 2\n"));
  }
  EXPECT_EQ(renderings_, 2);
}

TEST_F(HttpClientsTest, SilentClientsKeepNobodyOut) {
  HttpOptions options;
  options.limits = {.connections = 16, .per_peer = 8};
  Start(options);
  std::vector<RawClient> silent;
  for (int i = 0; i < 200; ++i) silent.push_back(Client());
  EXPECT_TRUE(Healthy());
  EXPECT_THAT(Ask(kAskMetrics), EndsWith("page 1\n"));
  for (RawClient& each : silent) each.CloseHalf();
  for (RawClient& each : silent) EXPECT_EQ(each.Hear(), "");
  EXPECT_GE(closed_, 200 - 8 - 1);
}

TEST_F(HttpClientsTest, ARequestThatTricklesInIsGivenUp) {
  HttpOptions options;
  options.deadlines.head = std::chrono::milliseconds(200);
  Start(options);
  RawClient silent = Client();
  RawClient slow = Client();
  slow.Say("GET /met");
  EXPECT_EQ(silent.Hear(), "");
  EXPECT_THAT(slow.Hear(), StartsWith("HTTP/1.1 408 "));
  WaitUntilClosed(2);
}

TEST_F(HttpClientsTest, AnAnswerThatIsNotTakenInTimeIsGivenUp) {
  HttpOptions options;
  options.deadlines.answer = std::chrono::milliseconds(200);
  Start(options);
  padding_ = 4 << 20;
  RawClient slow = Client();
  slow.Say(kAskMetrics);
  WaitUntilClosed(1);
  EXPECT_LT(slow.Hear().size(), size_t{padding_});
  EXPECT_TRUE(Healthy());
}

TEST_F(HttpClientsTest, ALargeAnswerIsWholeForWhoeverTakesIt) {
  Start();
  padding_ = 4 << 20;
  const std::string answer = Ask(kAskMetrics);
  EXPECT_GT(answer.size(), size_t{padding_});
  EXPECT_THAT(answer, EndsWith("xpage 1\n"));
}

TEST_F(HttpClientsTest, TheEndAnswersRequestsAndWaitsForNobodyElse) {
  Start();
  hold_ = true;
  RawClient silent = Client();
  RawClient asks = Client();
  asks.Say(kAskMetrics);
  EXPECT_TRUE(testing::Eventually([&] { return renderings_ > 0; }));
  RawClient late = Client();
  late.Say("GET /healthz HTTP/1.0\r\n\r\n");
  std::thread end([&] { endpoint_.reset(); });
  EXPECT_THAT(late.Hear(), EndsWith("SERVING\n"));
  go_.Notify();
  EXPECT_THAT(asks.Hear(), EndsWith("page 1\n"));
  EXPECT_EQ(silent.Hear(), "");
  end.join();
}

TEST_F(HttpClientsTest, ProbesAreAnsweredWhereNoDescriptorIsLeft) {
  Start();
  // Made before, as this process is client and server.
  rlimit before = {};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit few = {.rlim_cur = 256, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  std::vector<FileDescriptor> all;
  do {
    all.emplace_back(open("/dev/null", O_RDONLY | O_CLOEXEC));
  } while (all.back().ok());
  all.pop_back();
  for (int i = 0; i < 20; ++i) {
    // What a client gives up here the endpoint must not need.
    all.pop_back();
    RawClient silent = Client();
    all.pop_back();
    EXPECT_TRUE(Healthy()) << i;
    while (all.emplace_back(open("/dev/null", O_RDONLY | O_CLOEXEC)).ok()) {
    }
    all.pop_back();
    all.pop_back();
  }
  all.clear();
  EXPECT_THAT(Ask(kAskMetrics), EndsWith("page 1\n"));
  setrlimit(RLIMIT_NOFILE, &before);
}

TEST_F(HttpClientsTest, ListensOnEveryAddressOfAName) {
  for (const char* host : {"localhost", "::1", "::"}) {
    const auto endpoint = HttpEndpoint::Start(
        ListenAddress{host, 0, ""},
        {nullptr, [] { return true; }, [] { return true; }, nullptr});
    if (!endpoint.ok()) {
      GTEST_SKIP() << endpoint.status();  // a machine without IPv6
    }
    ListenAddress address = (*endpoint)->address();
    EXPECT_NE(address.port, 0);
    if (address.host == "::") address.host = "127.0.0.1";
    const absl::StatusOr<int> status =
        GetHttpStatus(address, "/healthz", absl::Seconds(20));
    ASSERT_TRUE(status.ok()) << host << ": " << status.status();
    EXPECT_EQ(*status, 200) << host;
  }
}

TEST_F(HttpClientsTest, AProbeOfWhatDoesNotAnswerTimesOut) {
  Start();
  hold_ = true;
  EXPECT_EQ(
      GetHttpStatus(endpoint_->address(), "/metrics", absl::Milliseconds(100))
          .status()
          .message(),
      "no answer");
  go_.Notify();
  EXPECT_EQ(*GetHttpStatus(endpoint_->address(), "/x", absl::Seconds(20)), 404);
}

TEST(HttpLimitsTest, FewDescriptorsGiveFewConnections) {
  EXPECT_EQ(HttpLimits(1 << 20).connections, 512u);
  EXPECT_EQ(HttpLimits(1 << 20).per_peer, 256u);
  EXPECT_EQ(HttpLimits(256).connections, 256u);
  EXPECT_EQ(HttpLimits(256).per_peer, 128u);
  EXPECT_EQ(HttpLimits(4).connections, 8u);
}

}  // namespace
}  // namespace kvcompress
