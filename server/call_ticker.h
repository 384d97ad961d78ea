// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Runs a check at every so many streams that gRPC has got to.
//
// gRPC 1.51 reads from a connection for as long as there is something to read,
// and makes a call of some 12 KiB for each stream that is opened, before it
// gets to what the calls it has are to do. It keeps to no limit on streams
// before the client has acknowledged it, and to none for those that were reset.
// So streams are counted where gRPC makes calls of them, once their headers
// have come, and where it gives up those that become none
// (telemetry/grpc_log.h). The thread that does so looks: another one may not
// have its turn on a processor for a while, and where this one waited for it at
// every tick, the next one of gRPC would read on meanwhile. A thread that looks
// may lose its processor too: once a few ticks have passed since it began,
// those that make calls wait for it, so that each thread of gRPC makes no more
// than one tick's.

#ifndef KVCOMPRESS_SERVER_CALL_TICKER_H_
#define KVCOMPRESS_SERVER_CALL_TICKER_H_

#include <grpcpp/server_context.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

namespace kvcompress {

// Thread safe.
class CallTicker {
 public:
  // REQUIRES: every > 0.
  explicit CallTicker(uint64_t every) : every_(every) {}

  // What is done at every tick, by one thread at a time; nothing where it is
  // null. It throws nothing. Once this returns, what was set before is not
  // being done any more.
  void SetLook(std::function<void()> look);
  // Does it now.
  void Look();

  // Counts a stream that becomes no call. `look` may be done here.
  void Add();
  // What a server counts its calls by. This outlives it.
  std::unique_ptr<grpc::ContextAllocator> NewCounter();

 private:
  class Counter;

  // Looks. REQUIRES: the mutex is held.
  void LookHeld();

  const uint64_t every_;
  std::atomic<uint64_t> calls_ = 0;
  std::atomic<uint64_t> looked_ = 0;  // `calls_` when the last look began
  std::mutex mutex_;
  std::function<void()> look_;  // guarded by the mutex
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_CALL_TICKER_H_
