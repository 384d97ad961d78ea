// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The listening sockets of a server: binds them, accepts connections within
// limits, and hands each to whoever serves it.
//
// Not gRPC's own listener: that of 1.51 gives up a listening socket for good
// when accept4 fails once, as it does when there is no descriptor. This one
// refuses what it cannot take, with a spare descriptor where there is no other,
// and goes on. See docs/decisions/own-acceptor.md.

#ifndef KVCOMPRESS_SERVER_ACCEPTOR_H_
#define KVCOMPRESS_SERVER_ACCEPTOR_H_

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "address.h"
#include "descriptors.h"
#include "file_descriptor.h"
#include "telemetry/logging.h"
#include "unread.h"

namespace kvcompress {

// Why a connection was closed as soon as it was accepted.
enum class Refusal : uint8_t {
  kLimit,        // as many are open as may be
  kHostLimit,    // as many from this host
  kDescriptors,  // no file descriptor was left for it
};
inline constexpr int kRefusalCount = 3;

struct AcceptOptions {
  // Permission bits of Unix sockets; nothing for what the umask leaves.
  std::optional<uint32_t> unix_mode;
  ConnectionLimits limits;
  // How long the peer of a connection may read nothing of what waits for it in
  // the socket before the connection is reset; see UnreadTimer.
  absl::Duration unread = absl::InfiniteDuration();
};

// Told by the accepting thread.
struct AcceptEvents {
  std::function<void()> accepted;
  std::function<void(Refusal)> refused;
  // Connections open now; told when the number changes, up to a second late.
  std::function<void(int)> open;
  // A connection was reset because its peer did not read.
  std::function<void()> unread;
};

// Thread safe after Start.
class Acceptor {
 public:
  // Takes over a connection to the address of this index, and its descriptor.
  using Take = std::function<void(size_t address, int fd)>;

  // Binds every address and listens. Fills in the ports that the system chose.
  // A wildcard address, of either family, takes connections of both where the
  // system has IPv6. A stale Unix socket is replaced. UNAVAILABLE, with the
  // address and the reason, when one cannot be bound.
  static absl::StatusOr<std::unique_ptr<Acceptor>> Bind(
      std::vector<ListenAddress>* addresses, const AcceptOptions& options,
      AcceptEvents events);

  // Stops, see below.
  ~Acceptor();
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  // Accepts from now on, on a thread of its own. REQUIRES: once.
  void Start(Take take);

  // Accepts no more, closes the listening sockets and removes Unix sockets.
  // Connections that were taken are left alone from then on. No call of Take is
  // under way once it returns.
  void Stop();

  // Whether the last connection was refused by a limit: the acceptor works, and
  // has no room. Says nothing of descriptors.
  bool is_full() const { return full_; }

 private:
  struct Listener {
    size_t address;
    FileDescriptor fd;
    std::string unix_path;  // empty for TCP
    dev_t device = 0;       // of the path, to remove no other file
    ino_t inode = 0;
  };
  struct Connection {
    int fd;
    // Of the socket: whether the descriptor is still this one.
    dev_t device;
    ino_t inode;
    std::string host;
    UnreadTimer unread = {};
    bool reset = false;
  };

  Acceptor(const AcceptOptions& options, AcceptEvents events);

  // Listens on `address`, and fills in its port.
  absl::Status Add(size_t index, ListenAddress* address);

  void Run();
  // Accepts what waits on a listener; false when descriptors have run out.
  bool Drain(const Listener& listener);
  // Accepts a connection with the spare descriptor, and closes it. False when
  // not even that can be done.
  bool RefuseForDescriptors(const Listener& listener);
  void Admit(const Listener& listener, FileDescriptor fd,
             const SocketAddress& peer);
  void Refuse(Refusal why);
  // Whether the descriptor `fd` is the socket of a connection.
  static bool Is(int fd, const Connection& connection);
  // Forgets the connections that have been closed, and resets those whose peers
  // do not read.
  void Sweep();
  // Resets a connection, unless it was closed meanwhile.
  void Reset(Connection* connection);
  void TellOpen();

  const AcceptOptions options_;
  const AcceptEvents events_;
  std::vector<Listener> listeners_;
  Take take_;
  FileDescriptor wake_;
  FileDescriptor spare_;
  std::atomic<bool> stopping_ = false;
  std::atomic<bool> full_ = false;
  // For the accepting thread alone.
  std::vector<Connection> connections_;
  absl::flat_hash_map<std::string, int> hosts_;
  int told_open_ = 0;
  std::chrono::steady_clock::time_point swept_;
  LineLimit refused_lines_;
  LineLimit unread_lines_;
  std::thread thread_;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_ACCEPTOR_H_
