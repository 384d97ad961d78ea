// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// More than 400 lines: all of it works on the list of connections.

#include "acceptor.h"

#include <fcntl.h>
#include <malloc.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "guarded.h"
#include "listening_socket.h"

namespace kvcompress {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// gRPC sets the same time on listening sockets of its own.
constexpr ListeningOptions kListening = {.backlog = 4096,
                                         .user_timeout_ms = 20'000,
                                         .ipv4_wildcard_takes_ipv6 = true};
// Connections accepted from one socket before the others have their turn.
constexpr int kBatch = 64;
// How often closed connections are looked for, and how long to wait when there
// is no descriptor to accept with.
constexpr milliseconds kSweepInterval{500};
constexpr milliseconds kSweepPause{5};
// How often to look again while there are too many streams.
constexpr milliseconds kShedInterval{5};
constexpr milliseconds kDescriptorPause{50};
constexpr std::chrono::seconds kLogInterval{10};
constexpr int kMaxLines = 1;  // of each kind, in that time

bool OutOfDescriptors(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS ||
         error == ENOMEM;
}

std::string Reason(int error) { return std::generic_category().message(error); }

FileDescriptor OpenSpare() {
  return FileDescriptor(open("/dev/null", O_RDONLY | O_CLOEXEC));
}

// Sockets made while this lives get the permissions `mode`, whatever the umask,
// from their first moment on.
class SocketMode {
 public:
  explicit SocketMode(std::optional<uint32_t> mode)
      : before_(mode ? std::optional(umask(0777 & ~*mode)) : std::nullopt) {}
  ~SocketMode() {
    if (before_) umask(*before_);
  }
  SocketMode(const SocketMode&) = delete;
  SocketMode& operator=(const SocketMode&) = delete;

 private:
  const std::optional<mode_t> before_;
};

}  // namespace

Acceptor::Acceptor(const AcceptOptions& options, AcceptEvents events)
    : options_(options),
      events_(std::move(events)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      flood_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      spare_(OpenSpare()),
      refused_lines_(kMaxLines, kLogInterval),
      unread_lines_(kMaxLines, kLogInterval),
      shed_lines_(kMaxLines, kLogInterval) {
  connections_.reserve(static_cast<size_t>(options_.limits.total));
}

Acceptor::~Acceptor() { Stop(); }

absl::StatusOr<std::unique_ptr<Acceptor>> Acceptor::Bind(
    std::vector<ListenAddress>* addresses, const AcceptOptions& options,
    AcceptEvents events) {
  auto acceptor =
      std::unique_ptr<Acceptor>(new Acceptor(options, std::move(events)));
  if (!acceptor->wake_.ok() || !acceptor->flood_.ok() ||
      !acceptor->spare_.ok()) {
    return absl::UnavailableError(absl::StrCat(
        "no file descriptor is left to listen with: ", Reason(errno)));
  }
  for (size_t i = 0; i < addresses->size(); ++i) {
    absl::Status status = acceptor->Add(i, &(*addresses)[i]);
    if (!status.ok()) return status;
  }
  return acceptor;
}

absl::Status Acceptor::Add(size_t index, ListenAddress* address) {
  if (address->is_unix()) {
    absl::Status free = RemoveStaleSocket(address->path);
    if (!free.ok()) return free;
  }
  const SocketMode mode(options_.unix_mode);
  absl::StatusOr<std::vector<FileDescriptor>> sockets =
      ListenOn(kListening, address);
  if (!sockets.ok()) {
    return absl::UnavailableError(absl::StrCat("cannot listen on ",
                                               address->ToString(), ": ",
                                               sockets.status().message()));
  }
  for (FileDescriptor& socket : *sockets) {
    Listener listener = {index, std::move(socket), address->path};
    struct stat info = {};
    if (address->is_unix() && lstat(address->path.c_str(), &info) == 0) {
      listener.device = info.st_dev;
      listener.inode = info.st_ino;
    }
    listeners_.push_back(std::move(listener));
  }
  return absl::OkStatus();
}

void Acceptor::Start(Take take) {
  take_ = std::move(take);
  if (options_.calls != nullptr) {
    options_.calls->SetLook([this] { Attempt([this] { LookForFloods(); }); });
  }
  thread_ = std::thread([this] { Run(); });
}

void Acceptor::Stop() {
  stopping_ = true;
  if (options_.calls != nullptr) options_.calls->SetLook(nullptr);
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written =
      write(wake_.get(), &one, sizeof(one));
  if (thread_.joinable()) thread_.join();
  for (const Listener& listener : listeners_) {
    struct stat info = {};
    if (!listener.unix_path.empty() &&
        lstat(listener.unix_path.c_str(), &info) == 0 &&
        info.st_dev == listener.device && info.st_ino == listener.inode) {
      unlink(listener.unix_path.c_str());
    }
  }
  listeners_.clear();
}

void Acceptor::Run() {
  std::vector<pollfd> files = {{wake_.get(), POLLIN, 0},
                               {flood_.get(), POLLIN, 0}};
  const size_t first = files.size();
  for (const Listener& listener : listeners_) {
    files.push_back({listener.fd.get(), POLLIN, 0});
  }
  while (!stopping_) {
    poll(files.data(), flooded_ ? 1 : files.size(),
         static_cast<int>((flooded_ ? kShedInterval : kSweepInterval).count()));
    if (stopping_) return;
    if (flooded_ || files[1].revents != 0) LookAgain();
    bool exhausted = false;
    for (size_t i = 0; i < listeners_.size(); ++i) {
      if (flooded_ || files[first + i].revents == 0) continue;
      bool drained = false;
      // Without memory the connections wait, as without descriptors.
      Attempt([&] { drained = Drain(listeners_[i]); });
      exhausted |= !drained;
    }
    if (steady_clock::now() - swept_ >= kSweepInterval) Sweep();
    TellOpen();
    // The sockets are still readable: without a pause this would spin.
    if (exhausted) {
      poll(files.data(), 1, static_cast<int>(kDescriptorPause.count()));
    }
  }
}

bool Acceptor::Drain(const Listener& listener) {
  for (int i = 0; i < kBatch && !stopping_; ++i) {
    SocketAddress peer;
    peer.size = sizeof(peer.storage);
    FileDescriptor fd(accept4(listener.fd.get(),
                              reinterpret_cast<sockaddr*>(&peer.storage),
                              &peer.size, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd.ok()) {
      Admit(listener, std::move(fd), peer);
    } else if (errno == EAGAIN) {
      return true;
    } else if (OutOfDescriptors(errno) && !RefuseForDescriptors(listener)) {
      return false;
    }
    // What else may fail is a fault of that one connection.
  }
  return true;
}

bool Acceptor::RefuseForDescriptors(const Listener& listener) {
  bool accepted = false;
  {
    const std::lock_guard lock(mutex_);
    spare_.Close();
    FileDescriptor fd(
        accept4(listener.fd.get(), nullptr, nullptr, SOCK_CLOEXEC));
    accepted = fd.ok();
    fd.Close();
    spare_ = OpenSpare();
  }
  full_ = false;
  if (accepted) Refuse(Refusal::kDescriptors);
  return accepted;
}

void Acceptor::Admit(const Listener& listener, FileDescriptor fd,
                     const SocketAddress& peer) {
  const ConnectionLimits& limits = options_.limits;
  const auto full = [&](const std::string& host) -> std::optional<Refusal> {
    if (connections_.size() >= static_cast<size_t>(limits.total)) {
      return Refusal::kLimit;
    }
    const auto found = hosts_.find(host);
    if (found != hosts_.end() && found->second >= limits.per_host) {
      return Refusal::kHostLimit;
    }
    return std::nullopt;
  };
  std::string host = HostKey(peer);
  std::optional<Refusal> refusal = full(host);
  if (refusal && steady_clock::now() - swept_ >= kSweepPause) {
    Sweep();
    refusal = full(host);
  }
  full_ = refusal.has_value();
  if (refusal) return Refuse(*refusal);

  struct stat info = {};
  fstat(fd.get(), &info);
  // Whoever had this number before has closed it.
  const auto same = [&](const Connection& each) { return each.fd == fd.get(); };
  if (std::any_of(connections_.begin(), connections_.end(), same)) Sweep();
  ++hosts_[host];
  {
    // There is space: nothing is counted that is not among them.
    const std::lock_guard lock(mutex_);
    connections_.push_back(
        {fd.get(), info.st_dev, info.st_ino, std::move(host), PeerKey(peer)});
  }
  events_.accepted();
  take_(listener.address, fd.Release());
}

void Acceptor::Refuse(Refusal why) {
  events_.refused(why);
  uint64_t dropped = 0;
  if (!refused_lines_.Pass(steady_clock::now(), &dropped)) return;
  const auto warn = [dropped](const std::string& reason) {
    spdlog::warn("refusing connections ({} since the last such line): {}",
                 dropped + 1, reason);
  };
  switch (why) {
    case Refusal::kLimit:
      warn(absl::StrCat(options_.limits.total,
                        " are open, as many as --max-connections allows"));
      break;
    case Refusal::kHostLimit:
      warn(absl::StrCat("a host has ", options_.limits.per_host,
                        ", as many as --max-connections-per-host allows"));
      break;
    case Refusal::kDescriptors:
      warn("no file descriptor is left; raise the limit (ulimit -n)");
      break;
  }
}

bool Acceptor::Is(int fd, const Connection& connection) {
  struct stat info = {};
  return fstat(fd, &info) == 0 && info.st_dev == connection.device &&
         info.st_ino == connection.inode;
}

void Acceptor::Sweep() {
  swept_ = steady_clock::now();
  const std::lock_guard lock(mutex_);
  const auto closed = [this](Connection& each) {
    if (Is(each.fd, each)) {
      const auto unread = each.unread.Look(each.fd, swept_);
      if (!each.reset && absl::FromChrono(unread) > options_.unread) {
        ResetUnread(&each);
      }
      return false;
    }
    const auto host = hosts_.find(each.host);
    if (--host->second == 0) hosts_.erase(host);
    return true;
  };
  connections_.erase(
      std::remove_if(connections_.begin(), connections_.end(), closed),
      connections_.end());
}

void Acceptor::ResetUnread(Connection* connection) {
  if (!Reset(connection)) return;
  events_.unread();
  Attempt([this] {
    uint64_t dropped = 0;
    if (!unread_lines_.Pass(swept_, &dropped)) return;
    spdlog::warn(
        "reset a connection whose client read nothing for {} ({} more since "
        "the last such line)",
        absl::FormatDuration(options_.unread), dropped);
  });
}

void Acceptor::LookAgain() {
  eventfd_t written = 0;
  eventfd_read(flood_.get(), &written);
  options_.calls->Look();
  // The next flood is on other threads, and these on other heaps.
  if (!flooded_) malloc_trim(0);
}

void Acceptor::LookForFloods() {
  const StreamCounts streams = options_.streams();
  const std::lock_guard lock(mutex_);
  uint64_t all = 0;
  for (const auto& [peer, count] : streams) all += count;
  uint64_t kept = 0;
  StreamCounts open;  // of connections that were not reset
  for (const Connection& each : connections_) {
    const auto found = streams.find(each.peer);
    if (each.reset || found == streams.end()) continue;
    if (open.insert(*found).second) kept += found->second;
  }
  const uint64_t most = options_.most_streams;
  const uint64_t some = most / 8;
  const uint64_t ending = all - kept;
  const bool too_many = all > most;
  if (too_many) {
    const uint64_t room = most - std::min(most, ending);
    Shed(kept, std::clamp(room + some, some, most / 2), open);
  }
  // What ends is to be gone before there is more of it.
  const bool before = flooded_;
  flooded_ = too_many || (before && ending > some);
  if (flooded_ && !before) eventfd_write(flood_.get(), 1);
}

void Acceptor::Shed(uint64_t all, uint64_t left, const StreamCounts& open) {
  std::vector<std::pair<uint64_t, std::string>> most;
  for (const auto& [peer, count] : open) most.emplace_back(count, peer);
  std::sort(most.rbegin(), most.rend());
  for (const auto& [count, peer] : most) {
    if (all <= left) break;
    all -= count;
    for (Connection& each : connections_) {
      if (each.peer != peer || each.reset || !Reset(&each)) continue;
      events_.shed();
      uint64_t dropped = 0;
      if (!shed_lines_.Pass(steady_clock::now(), &dropped)) continue;
      spdlog::warn(
          "reset a connection with {} streams ({} more since the last such "
          "line): all have more than {}, for which the memory limit leaves "
          "room",
          count, dropped, options_.most_streams);
    }
  }
}

bool Acceptor::Reset(Connection* connection) {
  // Whoever has the descriptor may close it at any time, and another file may
  // get its number. A copy stays what it is.
  spare_.Close();
  {
    const FileDescriptor copy(fcntl(connection->fd, F_DUPFD_CLOEXEC, 0));
    if (copy.ok() && Is(copy.get(), *connection)) {
      connection->reset = true;
      // What waits is dropped when the socket is closed, not kept to be sent.
      const linger now = {1, 0};
      setsockopt(copy.get(), SOL_SOCKET, SO_LINGER, &now, sizeof(now));
      shutdown(copy.get(), SHUT_RDWR);
      // Nor is what has come read by anybody else.
      std::byte dropped[64 << 10];
      while (recv(copy.get(), dropped, sizeof(dropped), MSG_DONTWAIT) > 0) {
      }
    }
  }
  spare_ = OpenSpare();
  return connection->reset;
}

void Acceptor::TellOpen() {
  const auto open = static_cast<int>(connections_.size());
  if (open != told_open_) events_.open(open);
  told_open_ = open;
}

}  // namespace kvcompress
