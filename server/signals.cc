// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "signals.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdlib>

#include "absl/time/clock.h"

namespace kvcompress {
namespace {

// Of one poll; a longer wait is several.
constexpr absl::Duration kLongestPoll = absl::Hours(1);

}  // namespace

StopSignals::StopSignals() {
  signal(SIGPIPE, SIG_IGN);
  sigset_t stops;
  sigemptyset(&stops);
  sigaddset(&stops, SIGTERM);
  sigaddset(&stops, SIGINT);
  pthread_sigmask(SIG_BLOCK, &stops, nullptr);
  signals_ = signalfd(-1, &stops, SFD_CLOEXEC | SFD_NONBLOCK);
  wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (signals_ < 0 || wake_ < 0) std::abort();
}

StopSignals::~StopSignals() {
  close(wake_);
  close(signals_);
}

int StopSignals::Wait(absl::Time deadline) {
  while (true) {
    signalfd_siginfo info;
    if (read(signals_, &info, sizeof(info)) == sizeof(info)) {
      return static_cast<int>(info.ssi_signo);
    }
    uint64_t wakes = 0;
    if (read(wake_, &wakes, sizeof(wakes)) == sizeof(wakes)) return 0;
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) return 0;
    pollfd files[] = {{signals_, POLLIN, 0}, {wake_, POLLIN, 0}};
    const absl::Duration nap =
        absl::Ceil(std::min(left, kLongestPoll), absl::Milliseconds(1));
    poll(files, std::size(files),
         static_cast<int>(absl::ToInt64Milliseconds(nap)));
  }
}

void StopSignals::Wake() {
  const uint64_t one = 1;
  // Fails only when a wake is already due.
  [[maybe_unused]] const ssize_t written = write(wake_, &one, sizeof(one));
}

}  // namespace kvcompress
