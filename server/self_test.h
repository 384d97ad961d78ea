// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// A built-in cache through the data path of every codec: for probes, operators
// and start-up.

#ifndef KVCOMPRESS_SERVER_SELF_TEST_H_
#define KVCOMPRESS_SERVER_SELF_TEST_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "kvcompress/compressor.h"
#include "small_call.h"
#include "worker_pool.h"

namespace kvcompress {

struct SelfTestOutcome {
  std::string codec;      // "int4:64"
  absl::Status status;    // OK, or what went wrong
  CompressReport report;  // complete when status is OK
  double seconds = 0;
};

// One outcome for each codec and parameter, or for those of one codec.
// INVALID_ARGUMENT for an unknown codec.
absl::StatusOr<std::vector<SelfTestOutcome>> SelfTest(absl::string_view codec);

// Outcomes that are at most a second old: a request of a few bytes asks for the
// work of every codec. Thread safe; one test runs at a time, and whoever comes
// meanwhile waits for it.
class RecentSelfTests {
 public:
  static constexpr std::chrono::seconds kFresh{1};
  using Clock = std::chrono::steady_clock;

  explicit RecentSelfTests(std::function<Clock::time_point()> now = Clock::now)
      : now_(std::move(now)) {}

  // As SelfTest.
  absl::StatusOr<std::vector<SelfTestOutcome>> Get(const std::string& codec);

 private:
  struct Recent {
    std::vector<SelfTestOutcome> outcomes;
    Clock::time_point ended;
  };

  const std::function<Clock::time_point()> now_;
  absl::Mutex mutex_;
  // By codec: only known ones have outcomes.
  std::map<std::string, Recent> recent_ ABSL_GUARDED_BY(mutex_);
};

// A thread for tests: they are long work for a request of a few bytes, and
// whoever waits for one must hold up no thread of gRPC, and none that streams
// need. Thread safe. Throws std::system_error when the system gives no thread.
class SelfTestQueue {
 public:
  // Most tests that wait.
  static constexpr size_t kMaxWaiting = kMaxSmallCalls;

  // Runs `task`, which throws nothing, on a thread for a client.
  // RESOURCE_EXHAUSTED when too many wait. Throws std::bad_alloc, and is then
  // as if it had not been called.
  absl::Status Add(absl::string_view client, std::function<void()> task);

 private:
  std::atomic<size_t> waiting_ = 0;
  WorkerPool workers_{1};
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_SELF_TEST_H_
