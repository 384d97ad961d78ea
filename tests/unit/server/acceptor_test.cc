// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "acceptor.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace kvcompress {
namespace {

ListenAddress Loopback() { return {"127.0.0.1", 0, ""}; }

std::string SocketPath() {
  return std::filesystem::path(::testing::TempDir()) /
         ("acceptor-" + std::to_string(getpid()) + ".sock");
}

// Writes until the socket, which does not block, takes no more.
void Fill(int fd) {
  const std::string data(1 << 16, 'x');
  while (send(fd, data.data(), data.size(), MSG_NOSIGNAL) > 0) {
  }
}

// An acceptor that keeps what it is given.
class Accepting {
 public:
  explicit Accepting(std::vector<ListenAddress> addresses,
                     ConnectionLimits limits = {8, 8, 0},
                     absl::Duration unread = absl::InfiniteDuration(),
                     CallTicker* calls = nullptr)
      : addresses_(std::move(addresses)) {
    auto bound = Acceptor::Bind(
        &addresses_,
        {0600, limits, unread, calls,
         [this] {
           const std::lock_guard lock(mutex_);
           return streams_;
         },
         8},
        {[] {}, [this](Refusal why) { Note([&] { ++refused_[why]; }); },
         [this](int open) { Note([&] { open_ = open; }); },
         [this] { Note([&] { ++unread_; }); },
         [this] { Note([&] { ++shed_; }); }});
    EXPECT_TRUE(bound.ok()) << bound.status();
    acceptor_ = *std::move(bound);
    acceptor_->Start([this](size_t address, int fd) {
      // As gRPC does, of more than sockets hold.
      if (fills_) Fill(fd);
      Note([&] {
        taken_.emplace_back(fd);
        last_address_ = address;
      });
    });
  }

  FileDescriptor Connect(size_t address = 0) {
    const auto target = Resolve(addresses_[address]);
    FileDescriptor fd(socket(target->front().family(), SOCK_STREAM, 0));
    EXPECT_EQ(connect(fd.get(), target->front().get(), target->front().size),
              0);
    return fd;
  }

  // From now on connections that are accepted are written to until they are
  // full.
  void FillTaken() { fills_ = true; }

  // Whether `condition` holds within a few seconds.
  template <typename Condition>
  bool Wait(Condition condition) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(10), condition);
  }
  void FillAgain() {
    Note([&] {
      for (const FileDescriptor& each : taken_) Fill(each.get());
    });
  }
  void CloseTaken() {
    Note([&] { taken_.clear(); });
  }

  size_t taken() const { return taken_.size(); }
  size_t last_address() const { return last_address_; }
  int refused(Refusal why) { return refused_[why]; }
  int open() const { return open_; }
  int unread() const { return unread_; }
  int shed() const { return shed_; }
  // How many streams the connections from here on have by peer.
  void SetStreams(StreamCounts streams) {
    Note([&] { streams_ = std::move(streams); });
  }
  Acceptor& acceptor() { return *acceptor_; }
  const ListenAddress& address(size_t index) const { return addresses_[index]; }

 private:
  template <typename Change>
  void Note(Change change) {
    const std::lock_guard lock(mutex_);
    change();
    changed_.notify_all();
  }

  std::vector<ListenAddress> addresses_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<FileDescriptor> taken_;
  size_t last_address_ = 0;
  std::map<Refusal, int> refused_;
  int open_ = 0;
  int unread_ = 0;
  int shed_ = 0;
  StreamCounts streams_;
  std::atomic<bool> fills_ = false;
  // Ends first: its thread uses what is above.
  std::unique_ptr<Acceptor> acceptor_;
};

// Whether the other end has hung up.
bool IsClosed(const FileDescriptor& fd) {
  pollfd file = {fd.get(), POLLIN, 0};
  char byte = 0;
  return poll(&file, 1, 10'000) == 1 && recv(fd.get(), &byte, 1, 0) <= 0;
}

TEST(Acceptor, HandsOverConnectionsWithTheirAddress) {
  Accepting accepting({Loopback(), {"", 0, SocketPath()}});
  EXPECT_NE(accepting.address(0).port, 0);
  const FileDescriptor tcp = accepting.Connect(0);
  EXPECT_TRUE(accepting.Wait([&] { return accepting.taken() == 1; }));
  EXPECT_EQ(accepting.last_address(), 0u);
  const FileDescriptor local = accepting.Connect(1);
  EXPECT_TRUE(accepting.Wait([&] { return accepting.taken() == 2; }));
  EXPECT_EQ(accepting.last_address(), 1u);
  EXPECT_TRUE(accepting.Wait([&] { return accepting.open() == 2; }));
}

TEST(Acceptor, RefusesAboveTheLimitAndHasRoomAgain) {
  Accepting accepting({Loopback()}, {2, 2, 0});
  const FileDescriptor first = accepting.Connect();
  const FileDescriptor second = accepting.Connect();
  EXPECT_TRUE(accepting.Wait([&] { return accepting.taken() == 2; }));
  EXPECT_FALSE(accepting.acceptor().is_full());
  EXPECT_TRUE(IsClosed(accepting.Connect()));
  EXPECT_TRUE(accepting.acceptor().is_full());
  EXPECT_EQ(accepting.refused(Refusal::kLimit), 1);
  // What is open is reported later than what is taken.
  EXPECT_TRUE(accepting.Wait([&] { return accepting.open() == 2; }));
  accepting.CloseTaken();
  EXPECT_TRUE(accepting.Wait([&] { return accepting.open() == 0; }));
  const FileDescriptor third = accepting.Connect();
  EXPECT_TRUE(accepting.Wait([&] { return accepting.taken() == 1; }));
  EXPECT_FALSE(accepting.acceptor().is_full());
}

TEST(Acceptor, CountsHostsApart) {
  Accepting accepting({Loopback(), {"", 0, SocketPath()}}, {8, 1, 0});
  const FileDescriptor first = accepting.Connect(0);
  EXPECT_TRUE(IsClosed(accepting.Connect(0)));
  EXPECT_EQ(accepting.refused(Refusal::kHostLimit), 1);
  const FileDescriptor local = accepting.Connect(1);
  EXPECT_TRUE(accepting.Wait([&] { return accepting.taken() == 2; }));
}

TEST(Acceptor, AWildcardTakesBothFamilies) {
  Accepting accepting({{"0.0.0.0", 0, ""}});
  ListenAddress v4 = Reachable(accepting.address(0));
  EXPECT_EQ(v4.host, "127.0.0.1");
  EXPECT_NE(v4.port, 0);
  const FileDescriptor connection = accepting.Connect();
  EXPECT_TRUE(accepting.Wait([&] { return accepting.taken() == 1; }));
}

TEST(Acceptor, SaysWhyAnAddressCannotBeBound) {
  Accepting accepting({Loopback()});
  std::vector<ListenAddress> same = {accepting.address(0)};
  const auto second = Acceptor::Bind(&same, {std::nullopt, {1, 1, 0}}, {});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(
      second.status().message(),
      "cannot listen on " + same[0].ToString() + ": Address already in use");
  std::vector<ListenAddress> absent = {{"192.0.2.1", 0, ""}};
  EXPECT_EQ(
      Acceptor::Bind(&absent, {std::nullopt, {1, 1, 0}}, {}).status().message(),
      "cannot listen on 192.0.2.1:0: Cannot assign requested address");
}

TEST(Acceptor, RemovesItsSocketAndNoOther) {
  const std::string path = SocketPath();
  {
    Accepting accepting({{"", 0, path}});
    struct stat info = {};
    ASSERT_EQ(stat(path.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600u);
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  {
    Accepting accepting({{"", 0, path}});
    std::filesystem::remove(path);
    std::ofstream(path) << "of somebody else";
  }
  EXPECT_TRUE(std::filesystem::exists(path));
  std::filesystem::remove(path);
}

TEST(Acceptor, ResetsConnectionsWhoseClientsDoNotRead) {
  for (const size_t address : {0, 1}) {
    Accepting accepting({Loopback(), {"", 0, SocketPath()}}, {8, 8, 0},
                        absl::Seconds(1));
    const FileDescriptor idle = accepting.Connect(address);
    EXPECT_TRUE(accepting.Wait([&] { return accepting.taken() == 1; }));
    accepting.FillTaken();
    const FileDescriptor unread = accepting.Connect(address);
    EXPECT_TRUE(accepting.Wait([&] { return accepting.unread() == 1; }));
    // Of a connection that is reset, TCP drops what was not read.
    std::string data(1 << 20, '\0');
    while (recv(unread.get(), data.data(), data.size(), 0) > 0) {
    }
    pollfd file = {idle.get(), POLLIN, 0};
    EXPECT_EQ(poll(&file, 1, 1500), 0);
    EXPECT_EQ(accepting.unread(), 1);
    accepting.CloseTaken();
    EXPECT_TRUE(accepting.Wait([&] { return accepting.open() == 0; }));
  }
}

TEST(Acceptor, KeepsConnectionsThatAreReadSlowly) {
  for (const size_t address : {0, 1}) {
    Accepting accepting({Loopback(), {"", 0, SocketPath()}}, {8, 8, 0},
                        absl::Seconds(1));
    accepting.FillTaken();
    const FileDescriptor slow = accepting.Connect(address);
    EXPECT_TRUE(accepting.Wait([&] { return accepting.taken() == 1; }));
    std::string data(1 << 16, '\0');
    for (int i = 0; i < 12; ++i) {
      EXPECT_GT(recv(slow.get(), data.data(), data.size(), 0), 0);
      pollfd file = {slow.get(), POLLRDHUP, 0};
      EXPECT_EQ(poll(&file, 1, 250), 0) << i;
      accepting.FillAgain();
    }
    EXPECT_EQ(accepting.unread(), 0);
  }
}

// The key of this end of a connection, as its other end sees it.
std::string KeyOf(const FileDescriptor& fd) {
  SocketAddress address;
  address.size = sizeof(address.storage);
  EXPECT_EQ(getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address.storage),
                        &address.size),
            0);
  return PeerKey(address);
}

// Connections that were taken.
std::vector<FileDescriptor> ConnectThree(Accepting* accepting) {
  std::vector<FileDescriptor> clients;
  for (size_t i = 0; i < 3; ++i) clients.push_back(accepting->Connect());
  EXPECT_TRUE(accepting->Wait([&] { return accepting->taken() == 3; }));
  return clients;
}

TEST(Acceptor, ResetsTheConnectionsWithTheMostStreamsWhereThereAreTooMany) {
  CallTicker calls(2);
  const std::unique_ptr<grpc::ContextAllocator> counter = calls.NewCounter();
  Accepting accepting({Loopback()}, {8, 8, 0}, absl::InfiniteDuration(),
                      &calls);
  std::vector<FileDescriptor> clients = ConnectThree(&accepting);
  const std::string most = KeyOf(clients[1]);
  accepting.SetStreams(
      {{KeyOf(clients[0]), 3}, {most, 5}, {KeyOf(clients[2]), 1}});
  counter->NewCallbackServerContext();
  counter->NewGenericCallbackServerContext();
  EXPECT_TRUE(accepting.Wait([&] { return accepting.shed() == 1; }));
  EXPECT_TRUE(IsClosed(clients[1]));
  // Whoever connects waits until what was reset is gone.
  clients.push_back(accepting.Connect());
  EXPECT_EQ(accepting.taken(), 3u);
  accepting.SetStreams({{KeyOf(clients[0]), 3}, {KeyOf(clients[2]), 1}});
  EXPECT_TRUE(accepting.Wait([&] { return accepting.taken() == 4; }));
  EXPECT_EQ(accepting.shed(), 1);
}

// Who was left with half of the streams had as many again in a moment, on top
// of those that were reset and not gone.
TEST(Acceptor, LeavesLessWhileWhatWasResetIsNotGone) {
  CallTicker calls(1);
  const std::unique_ptr<grpc::ContextAllocator> counter = calls.NewCounter();
  Accepting accepting({Loopback()}, {8, 8, 0}, absl::InfiniteDuration(),
                      &calls);
  const std::vector<FileDescriptor> clients = ConnectThree(&accepting);
  const std::string few = KeyOf(clients[0]);
  const std::string some = KeyOf(clients[1]);
  const std::string most = KeyOf(clients[2]);
  accepting.SetStreams({{few, 1}, {some, 3}, {most, 5}});
  counter->NewCallbackServerContext();
  EXPECT_TRUE(accepting.Wait([&] { return accepting.shed() == 1; }));
  EXPECT_TRUE(IsClosed(clients[2]));
  accepting.SetStreams({{few, 1}, {some, 3}, {most, 8}});
  counter->NewCallbackServerContext();
  EXPECT_TRUE(accepting.Wait([&] { return accepting.shed() == 2; }));
  EXPECT_TRUE(IsClosed(clients[1]));
  counter->NewCallbackServerContext();
  EXPECT_EQ(accepting.shed(), 2);
}

TEST(Acceptor, UnixSocketsAreOnePeer) {
  CallTicker calls(1);
  const std::unique_ptr<grpc::ContextAllocator> counter = calls.NewCounter();
  Accepting accepting({Loopback(), {"", 0, SocketPath()}}, {8, 8, 0},
                      absl::InfiniteDuration(), &calls);
  const FileDescriptor tcp = accepting.Connect(0);
  const FileDescriptor first = accepting.Connect(1);
  const FileDescriptor second = accepting.Connect(1);
  EXPECT_TRUE(accepting.Wait([&] { return accepting.taken() == 3; }));
  accepting.SetStreams({{KeyOf(tcp), 4}, {KeyOf(first), 5}});
  counter->NewCallbackServerContext();
  EXPECT_TRUE(accepting.Wait([&] { return accepting.shed() == 2; }));
  EXPECT_TRUE(IsClosed(first));
  EXPECT_TRUE(IsClosed(second));
}

TEST(PeerKey, IsTheSameInBothFamilies) {
  SocketAddress v4;
  auto* const in = reinterpret_cast<sockaddr_in*>(&v4.storage);
  in->sin_family = AF_INET;
  in->sin_port = htons(258);
  in->sin_addr.s_addr = htonl(0x7f000002);
  EXPECT_EQ(PeerKey(v4), std::string("\x7f\0\0\2:258", 8));
  SocketAddress mapped;
  auto* const in6 = reinterpret_cast<sockaddr_in6*>(&mapped.storage);
  in6->sin6_family = AF_INET6;
  in6->sin6_port = htons(258);
  in6->sin6_addr.s6_addr[10] = in6->sin6_addr.s6_addr[11] = 0xff;
  in6->sin6_addr.s6_addr[12] = 127;
  in6->sin6_addr.s6_addr[15] = 2;
  EXPECT_EQ(PeerKey(mapped), PeerKey(v4));
  in6->sin6_addr.s6_addr[0] = 0x20;
  EXPECT_EQ(PeerKey(mapped).size(), 16 + 4);
}

TEST(PlanConnections, LeavesDescriptorsForOtherThings) {
  const auto few = PlanConnections(256, std::nullopt, std::nullopt);
  ASSERT_TRUE(few.ok());
  EXPECT_EQ(few->total, 120);
  EXPECT_EQ(few->per_host, 60);
  EXPECT_EQ(few->http, 32);
  const auto many = PlanConnections(1 << 20, std::nullopt, std::nullopt);
  ASSERT_TRUE(many.ok());
  EXPECT_EQ(many->total, kDefaultMaxConnections);
  EXPECT_EQ(many->per_host, kDefaultMaxConnections / 2);
  EXPECT_EQ(many->http, kMaxHttpConnections);
}

TEST(PlanConnections, RefusesWhatCannotBeHeld) {
  EXPECT_EQ(PlanConnections(127, std::nullopt, std::nullopt).status().message(),
            "the limit of file descriptors is 127, and at least 128 are "
            "needed: raise it (ulimit -n, LimitNOFILE)");
  EXPECT_EQ(
      PlanConnections(256, 121, std::nullopt).status().message(),
      "--max-connections is 121, but the limit of 256 file descriptors "
      "leaves 120 for connections: lower the flag or raise the limit (ulimit "
      "-n, LimitNOFILE)");
  const auto asked = PlanConnections(256, 120, 200);
  ASSERT_TRUE(asked.ok());
  EXPECT_EQ(asked->total, 120);
  EXPECT_EQ(asked->per_host, 120);
}

}  // namespace
}  // namespace kvcompress
