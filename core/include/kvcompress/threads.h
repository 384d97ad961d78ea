// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Threads that are lent to a Compressor or Decompressor, which then works on
// several tensors at a time.

#ifndef KVCOMPRESS_THREADS_H_
#define KVCOMPRESS_THREADS_H_

#include <cstdint>
#include <functional>

namespace kvcompress {

// What is compressed or restored does not depend on any of it.
struct Threads {
  // How many work at a time at most, the one that calls among them. At 1 it
  // works alone, and needs none of the following.
  unsigned count = 1;
  // Runs a task on another thread, at some time or never. The task throws
  // nothing and ends by itself; whoever lent the threads runs it before they
  // end, also after the Compressor or Decompressor has. May throw
  // std::bad_alloc. Thread safe.
  std::function<void(std::function<void()>)> run;
  // Memory that working on several tensors may take, in bytes: fewer threads
  // work where they would take more.
  uint64_t memory = 0;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_THREADS_H_
