// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "client/cli/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"

namespace kvcompress::cli {
namespace {

constexpr double kMegabyte = 1e6;

}  // namespace

std::string ProgressLine(uint64_t done, std::optional<uint64_t> total,
                         absl::Duration elapsed) {
  constexpr uint64_t kWidth = 30;
  const double seconds = std::max(absl::ToDoubleSeconds(elapsed), 1e-3);
  const double megabytes = static_cast<double>(done) / kMegabyte;
  std::string speed =
      absl::StrFormat("%.1f MB  %.1f MB/s", megabytes, megabytes / seconds);
  if (!total) return speed;
  const double share = *total == 0
                           ? 1
                           : std::min(1.0, static_cast<double>(done) /
                                               static_cast<double>(*total));
  const auto filled = static_cast<size_t>(share * kWidth);
  return absl::StrFormat("%3.0f%% [%s%s] %s", 100 * share,
                         std::string(filled, '#'),
                         std::string(kWidth - filled, ' '), speed);
}

Progress::Progress(ProgressMode mode, std::optional<uint64_t> total)
    : terminal_(isatty(STDERR_FILENO) == 1),
      enabled_(mode == ProgressMode::kAlways ||
               (mode == ProgressMode::kAuto && terminal_)),
      keep_(mode == ProgressMode::kAlways),
      total_(total),
      start_(absl::Now()),
      next_(keep_ ? start_ : start_ + absl::Seconds(1)) {}

Progress::~Progress() {
  if (!enabled_) return;
  if (keep_) {
    Draw(absl::Now());
    if (terminal_) std::fputc('\n', stderr);
  } else if (drawn_) {
    std::fputs("\r\033[K", stderr);
  }
}

void Progress::Advance(uint64_t bytes) {
  done_ += bytes;
  if (!enabled_) return;
  const absl::Time now = absl::Now();
  if (now >= next_) Draw(now);
}

void Progress::Draw(absl::Time now) {
  const std::string line = ProgressLine(done_, total_, now - start_);
  if (terminal_) {
    absl::FPrintF(stderr, "\r%s\033[K", line);
  } else {
    absl::FPrintF(stderr, "%s\n", line);
  }
  drawn_ = true;
  next_ = now + (terminal_ ? absl::Milliseconds(100) : absl::Seconds(1));
}

}  // namespace kvcompress::cli
