// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// How long the peer of a connected socket has read nothing of what waits in the
// socket's send queue.
//
// gRPC 1.51 keeps a write until the socket takes it, and with it the call and
// its memory, also when the call was cancelled. What a peer reads is therefore
// measured at the socket.

#ifndef KVCOMPRESS_SERVER_UNREAD_H_
#define KVCOMPRESS_SERVER_UNREAD_H_

#include <chrono>
#include <cstdint>

namespace kvcompress {

// Of one socket. Not thread safe.
class UnreadTimer {
 public:
  using Clock = std::chrono::steady_clock;

  // Looks at the socket, at least twice within a time that matters. Returns for
  // how long its send queue has held bytes of which the peer took none; zero
  // when there are none, or some were taken since the last look.
  //
  // TCP: a byte is taken once it is acknowledged. Unix sockets have no such
  // count: their queue matters only while it is so full that nobody can write,
  // and shrinks in pieces of up to some 48 KiB, as Linux holds what was sent.
  // While it does not shrink, its limit is kept at a quarter.
  Clock::duration Look(int fd, Clock::time_point now);

 private:
  // Of a Unix socket. Sees to it that a queue that is read and filled again
  // between two looks has another length at the second.
  void SetLimit(int fd, bool moved, int queued);

  bool waits_ = false;
  uint64_t mark_ = 0;  // differs once a byte was taken
  Clock::time_point since_;
  int limit_ = 0;  // SO_SNDBUF of a Unix socket as it was; 0 when not known
  bool lowered_ = false;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_UNREAD_H_
