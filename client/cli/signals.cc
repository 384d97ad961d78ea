// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "client/cli/signals.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstring>

namespace kvcompress::cli {
namespace {

// Signal handlers may use little more than a lock-free atomic and a buffer that
// never moves.
char temporary[PATH_MAX];
std::atomic<bool> has_temporary{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void RemoveAndDie(int number) {
  if (has_temporary.load(std::memory_order_acquire)) unlink(temporary);
  signal(number, SIG_DFL);
  raise(number);
}

}  // namespace

void InstallSignalHandlers() {
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
  for (const int number : {SIGHUP, SIGINT, SIGQUIT, SIGTERM}) {
    struct sigaction action = {};
    if (sigaction(number, nullptr, &action) != 0) continue;
    if (action.sa_handler == SIG_IGN) continue;
    action = {};
    action.sa_handler = &RemoveAndDie;
    sigaction(number, &action, nullptr);
  }
}

void EndByClosedPipe() { RemoveAndDie(SIGPIPE); }

void RemoveOnSignal(const char* path) {
  has_temporary.store(false, std::memory_order_release);
  if (path == nullptr || std::strlen(path) >= sizeof(temporary)) return;
  std::strcpy(temporary, path);
  has_temporary.store(true, std::memory_order_release);
}

}  // namespace kvcompress::cli
