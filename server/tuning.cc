// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "tuning.h"

#include <grpc/grpc.h>
#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <thread>

#include "absl/synchronization/mutex.h"

namespace kvcompress {
namespace {

// Larger blocks are mapped, in bytes.
constexpr int kMapped = 4 << 20;
// The most that is kept free at the end of a heap, in bytes.
constexpr int kKept = 16 << 20;

}  // namespace

void TuneProcess() {
  const auto processors = static_cast<int>(std::thread::hardware_concurrency());
  // NOLINTBEGIN(concurrency-mt-unsafe): called before there are threads.
  mallopt(M_ARENA_MAX, std::max(processors, 2));
  mallopt(M_MMAP_THRESHOLD, kMapped);
  mallopt(M_TRIM_THRESHOLD, kKept);
  // NOLINTEND(concurrency-mt-unsafe)
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
}

void BoundReadsOfGrpc() {
  constexpr char kName[] = "GRPC_EXPERIMENTS";
  // NOLINTBEGIN(concurrency-mt-unsafe): called before there are threads.
  const char* const asked_for = std::getenv(kName);
  std::string experiments = asked_for == nullptr ? "" : asked_for;
  if (!experiments.empty()) experiments += ',';
  setenv(kName, (experiments + "-tcp_read_chunks").c_str(), /*overwrite=*/1);
  // NOLINTEND(concurrency-mt-unsafe)
}

void KeepGrpc() { grpc_init(); }

}  // namespace kvcompress
