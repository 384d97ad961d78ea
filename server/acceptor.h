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
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "address.h"
#include "call_ticker.h"
#include "descriptors.h"
#include "file_descriptor.h"
#include "stream_counts.h"
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
  // The calls on the connections that were taken; outlives the acceptor. At
  // each of its ticks, on the thread that ticks, `streams` counts what they
  // have. While these are more than `most_streams`, those with the most are
  // reset until the others have half as many, and down to an eighth where
  // streams of what was reset are not gone and take the rest. No connection is
  // accepted until nearly all of those are gone. Null: nobody counts.
  CallTicker* calls = nullptr;
  std::function<StreamCounts()> streams;
  uint64_t most_streams = 0;
};

// Told by the accepting thread, and `shed` by those of calls.
struct AcceptEvents {
  std::function<void()> accepted;
  std::function<void(Refusal)> refused;
  // Connections open now; called when the number changes, up to a second late.
  std::function<void(int)> open;
  // A connection was reset because its peer did not read.
  std::function<void()> unread;
  // A connection was reset because there were too many streams.
  std::function<void()> shed;
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
  // is full. Does not cover descriptors.
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
    std::string peer;  // PeerKey
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
  void ResetUnread(Connection* connection);
  // Looks for floods while there is one.
  void LookAgain();
  // Counts streams, and resets the connections with the most where there are
  // too many. Of one thread at a time.
  void LookForFloods();
  // Of the `all` streams of the peers in `open`, leaves `left` at most.
  void Shed(uint64_t all, uint64_t left, const StreamCounts& open);
  // Resets a connection, and drops what it has sent; false where it was closed
  // meanwhile.
  bool Reset(Connection* connection);
  void TellOpen();

  const AcceptOptions options_;
  const AcceptEvents events_;
  std::vector<Listener> listeners_;
  Take take_;
  FileDescriptor wake_;
  std::atomic<bool> stopping_ = false;
  std::atomic<bool> full_ = false;
  std::atomic<bool> flooded_ = false;  // whether there are too many streams
  FileDescriptor flood_;               // readable from then on
  std::mutex mutex_;
  FileDescriptor spare_;                 // guarded by the mutex
  std::vector<Connection> connections_;  // the same
  // For the accepting thread alone.
  std::map<std::string, int> hosts_;
  int told_open_ = 0;
  std::chrono::steady_clock::time_point swept_;
  LineLimit refused_lines_;
  LineLimit unread_lines_;
  LineLimit shed_lines_;
  std::thread thread_;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_ACCEPTOR_H_
