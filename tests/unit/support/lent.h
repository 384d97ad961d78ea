// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Threads that tests lend to a Compressor or Decompressor.

#ifndef KVCOMPRESS_TESTS_UNIT_SUPPORT_LENT_H_
#define KVCOMPRESS_TESTS_UNIT_SUPPORT_LENT_H_

#include <cstdint>

#include "kvcompress/thread_pool.h"
#include "kvcompress/threads.h"

namespace kvcompress::testing {

inline constexpr uint64_t kEnough = uint64_t{1} << 30;

// A few threads.
class Lent {
 public:
  explicit Lent(unsigned threads) : pool_(threads) {}

  Threads Give(unsigned count, uint64_t memory = kEnough) {
    return pool_.Lend(count, memory);
  }

 private:
  ThreadPool pool_;
};

}  // namespace kvcompress::testing

#endif  // KVCOMPRESS_TESTS_UNIT_SUPPORT_LENT_H_
