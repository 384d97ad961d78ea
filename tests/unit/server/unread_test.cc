// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "unread.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <string>
#include <utility>

#include "file_descriptor.h"

namespace kvcompress {
namespace {

using std::chrono::seconds;

struct Ends {
  FileDescriptor ours;  // does not block
  FileDescriptor peers;
};

Ends UnixPair() {
  int fds[2] = {-1, -1};
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
  fcntl(fds[0], F_SETFL, O_NONBLOCK);
  return {FileDescriptor(fds[0]), FileDescriptor(fds[1])};
}

Ends TcpPair() {
  const FileDescriptor listener(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  socklen_t size = sizeof(address);
  EXPECT_EQ(bind(listener.get(), any, size), 0);
  EXPECT_EQ(listen(listener.get(), 1), 0);
  EXPECT_EQ(getsockname(listener.get(), any, &size), 0);
  FileDescriptor peers(socket(AF_INET, SOCK_STREAM, 0));
  EXPECT_EQ(connect(peers.get(), any, size), 0);
  return {
      FileDescriptor(accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK)),
      std::move(peers)};
}

class UnreadTimerTest : public ::testing::TestWithParam<Ends (*)()> {
 protected:
  void Fill() {
    const std::string data(1 << 16, 'x');
    while (send(ends_.ours.get(), data.data(), data.size(), 0) > 0) {
    }
  }
  // Reads all that is there.
  void Drain() {
    std::string data(1 << 16, '\0');
    while (recv(ends_.peers.get(), data.data(), data.size(), MSG_DONTWAIT) >
           0) {
    }
  }
  UnreadTimer::Clock::duration LookAt(int second) {
    return timer_.Look(ends_.ours.get(),
                       UnreadTimer::Clock::time_point(seconds(second)));
  }

  Ends ends_ = GetParam()();
  UnreadTimer timer_;
};

TEST_P(UnreadTimerTest, CountsWhileNothingIsRead) {
  EXPECT_EQ(LookAt(1), seconds(0));
  EXPECT_EQ(LookAt(9), seconds(0));
  Fill();
  EXPECT_EQ(LookAt(10), seconds(0));
  EXPECT_EQ(LookAt(11), seconds(1));
  EXPECT_EQ(LookAt(17), seconds(7));
}

TEST_P(UnreadTimerTest, BeginsAnewWhenSomethingIsRead) {
  Fill();
  EXPECT_EQ(LookAt(10), seconds(0));
  EXPECT_EQ(LookAt(15), seconds(5));
  Drain();
  Fill();
  EXPECT_EQ(LookAt(20), seconds(0));
  EXPECT_EQ(LookAt(22), seconds(2));
}

TEST_P(UnreadTimerTest, SaysNothingOfWhatIsNoSocket) {
  const FileDescriptor null(open("/dev/null", O_RDWR));
  for (const int second : {1, 5}) {
    EXPECT_EQ(timer_.Look(null.get(),
                          UnreadTimer::Clock::time_point(seconds(second))),
              seconds(0));
  }
}

INSTANTIATE_TEST_SUITE_P(Sockets, UnreadTimerTest,
                         ::testing::Values(UnixPair, TcpPair));

}  // namespace
}  // namespace kvcompress
