// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#ifndef KVCOMPRESS_TESTS_UNIT_SUPPORT_EVENTUALLY_H_
#define KVCOMPRESS_TESTS_UNIT_SUPPORT_EVENTUALLY_H_

#include <chrono>
#include <thread>

namespace kvcompress::testing {

// Whether `condition` becomes true within a minute, which is far longer than
// anything takes that works: a test then fails instead of hanging.
template <typename Condition>
bool Eventually(Condition condition) {
  using std::chrono::steady_clock;
  const auto give_up = steady_clock::now() + std::chrono::minutes(1);
  while (!condition()) {
    if (steady_clock::now() > give_up) return false;
    std::this_thread::yield();
  }
  return true;
}

}  // namespace kvcompress::testing

#endif  // KVCOMPRESS_TESTS_UNIT_SUPPORT_EVENTUALLY_H_
