// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "telemetry/http_table.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace kvcompress {
namespace {

using std::chrono::seconds;
using ConnectionState = HttpConnection::State;

constexpr HttpConnection::Deadlines kDeadlines = {seconds(2), seconds(10)};
constexpr char kAsk[] = "GET /x HTTP/1.0\r\n\r\n";

HttpTable::Limits SmallLimits() {
  return {.connections = 6, .per_peer = 4, .answer_bytes = 100'000};
}

class HttpTableTest : public ::testing::Test {
 protected:
  // A connection of client `peer`, a second after the one before. Its other end
  // says `text`.
  HttpConnection* Add(uint8_t peer, absl::string_view text = "") {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0,
                         ends),
              0);
    clients_.emplace_back(ends[1]);
    EXPECT_EQ(write(ends[1], text.data(), text.size()),
              static_cast<ssize_t>(text.size()));
    now_ += seconds(1);
    HttpConnection* connection =
        table_.Add({FileDescriptor(ends[0]),
                    HttpPeer(1, static_cast<char>(peer)), now_, kDeadlines});
    if (!text.empty()) connection->Receive(now_);
    return connection;
  }

  // One that does not take its answer.
  HttpConnection* AddSending(uint8_t peer, const HttpBody& body) {
    HttpConnection* connection = Add(peer, kAsk);
    connection->Answer({200, kTextPlain, body}, now_);
    EXPECT_EQ(connection->state(), ConnectionState::kSending);
    return connection;
  }

  HttpConnection* AddRendering(uint8_t peer) {
    HttpConnection* connection = Add(peer, kAsk);
    connection->AwaitRendering(0, 1, now_);
    return connection;
  }

  static HttpBody Large() {
    return std::make_shared<const std::string>(4 << 20, 'x');
  }

  HttpTime now_ = HttpTime() + std::chrono::hours(1);
  size_t open_ = 0;
  std::vector<HttpClose> closed_;
  std::vector<FileDescriptor> clients_;
  HttpTable table_{SmallLimits(),
                   {[this](size_t open) { open_ = open; },
                    [this](HttpClose reason) { closed_.push_back(reason); }}};
};

TEST_F(HttpTableTest, AClientHasItsShareAndItsOldestGoes) {
  HttpConnection* first = Add(1);
  HttpConnection* other = Add(2);
  for (int i = 0; i < 3; ++i) Add(1);
  table_.BoundNumbers(now_);
  EXPECT_FALSE(first->closed());
  Add(1);
  table_.BoundNumbers(now_);
  EXPECT_TRUE(first->closed());
  EXPECT_FALSE(other->closed());
  EXPECT_TRUE(table_.Sweep());
  EXPECT_FALSE(table_.Sweep());
  EXPECT_EQ(closed_, std::vector({HttpClose::kAddressLimit}));
  EXPECT_EQ(open_, 5u);
}

TEST_F(HttpTableTest, WhoHasMostOfAFullTableLosesOne) {
  HttpConnection* alone = Add(1);
  HttpConnection* first = Add(2);
  for (int i = 0; i < 3; ++i) Add(2);
  Add(3);
  table_.BoundNumbers(now_);
  EXPECT_TRUE(closed_.empty());
  HttpConnection* newest = Add(4);
  table_.BoundNumbers(now_);
  EXPECT_TRUE(first->closed());
  EXPECT_FALSE(alone->closed());
  EXPECT_FALSE(newest->closed());
  table_.Sweep();
  EXPECT_EQ(closed_, std::vector({HttpClose::kEvicted}));
  EXPECT_EQ(open_, 6u);
}

TEST_F(HttpTableTest, WhoTakesItsAnswerGoesAfterWhoSaysNothing) {
  HttpConnection* sending = AddSending(1, Large());
  HttpConnection* silent = Add(1);
  HttpConnection* half = Add(1, "GET /");
  Add(1);
  Add(1);
  table_.BoundNumbers(now_);
  EXPECT_TRUE(silent->closed());
  Add(1);
  table_.BoundNumbers(now_);
  EXPECT_TRUE(half->closed());
  EXPECT_FALSE(sending->closed());
}

TEST_F(HttpTableTest, WhoReadsGoesAfterWhoDoesNot) {
  HttpConnection* reads = AddSending(1, Large());
  HttpConnection* does_not = AddSending(1, Large());
  for (int i = 0; i < 2; ++i) AddSending(1, Large());
  std::string taken(1 << 20, '\0');
  ASSERT_GT(read(clients_[0].get(), taken.data(), taken.size()), 0);
  now_ += seconds(1);
  reads->Send(now_);
  AddSending(1, Large());
  table_.BoundNumbers(now_);
  EXPECT_TRUE(does_not->closed());
  EXPECT_FALSE(reads->closed());
}

TEST_F(HttpTableTest, WhoWaitsForAPageDoesNotCountInItsShare) {
  HttpConnection* rendering = AddRendering(1);
  for (int i = 0; i < 5; ++i) AddRendering(1);
  table_.BoundNumbers(now_);
  table_.Sweep();
  EXPECT_TRUE(closed_.empty());
  // But it does in the table.
  Add(2);
  table_.BoundNumbers(now_);
  EXPECT_TRUE(rendering->closed());
}

TEST_F(HttpTableTest, ARequestMayComeAMomentAfterItsConnection) {
  for (int i = 0; i < 4; ++i) AddSending(1, Large());
  HttpConnection* newest = Add(1);
  table_.BoundNumbers(now_);
  EXPECT_FALSE(newest->closed());
}

TEST_F(HttpTableTest, AnswersNotTakenAreBoundedAndSharedOnesCountOnce) {
  const HttpBody shared = std::make_shared<const std::string>(1 << 20, 'x');
  HttpConnection* oldest = AddSending(1, Large());
  HttpConnection* a = AddSending(2, shared);
  HttpConnection* b = AddSending(3, shared);
  table_.BoundAnswers();
  EXPECT_TRUE(oldest->closed());
  EXPECT_FALSE(a->closed());
  EXPECT_FALSE(b->closed());
  EXPECT_EQ(oldest->body(), nullptr);
}

TEST_F(HttpTableTest, ForADescriptorWhoeverWaitsForARequestGoes) {
  HttpConnection* sending = AddSending(1, Large());
  HttpConnection* older = Add(1);
  HttpConnection* newer = Add(2);
  EXPECT_TRUE(table_.FreeOne());
  EXPECT_TRUE(older->closed());
  EXPECT_TRUE(table_.FreeOne());
  EXPECT_TRUE(newer->closed());
  EXPECT_FALSE(table_.FreeOne());
  EXPECT_FALSE(sending->closed());
}

TEST_F(HttpTableTest, DeadlinesEndWhoeverIsSlow) {
  HttpConnection* silent = Add(1);
  HttpConnection* half = Add(1, "GET /");
  HttpConnection* sending = AddSending(1, Large());
  HttpConnection* rendering = AddRendering(1);
  silent->Expire(now_);
  half->Expire(now_);
  sending->Expire(now_);
  rendering->Expire(now_);
  char answer[64] = "";
  EXPECT_EQ(read(clients_[0].get(), answer, sizeof(answer)), 0);
  EXPECT_GT(read(clients_[1].get(), answer, sizeof(answer)), 0);
  EXPECT_EQ(std::string(answer, 12), "HTTP/1.1 408");
  EXPECT_GT(read(clients_[3].get(), answer, sizeof(answer)), 0);
  EXPECT_EQ(std::string(answer, 12), "HTTP/1.1 503");
  table_.Sweep();
  EXPECT_EQ(closed_,
            std::vector({HttpClose::kHeaderTimeout, HttpClose::kHeaderTimeout,
                         HttpClose::kWriteTimeout}));
  EXPECT_TRUE(table_.empty());
}

}  // namespace
}  // namespace kvcompress
