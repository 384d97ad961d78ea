// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "client/cli/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "kvcompress/error.h"

namespace kvcompress::cli {
namespace {

constexpr double kMegabyte = 1e6;

// "  0:07 left", or with hours "  1:00:07 left".
std::string TimeLeft(double seconds) {
  constexpr double kMostSeconds = 360000;  // 100 hours
  const auto whole =
      static_cast<int>(std::ceil(std::min(seconds, kMostSeconds)));
  const int minutes = whole / 60 % 60;
  return whole < 3600 ? absl::StrFormat("  %d:%02d left", minutes, whole % 60)
                      : absl::StrFormat("  %d:%02d:%02d left", whole / 3600,
                                        minutes, whole % 60);
}

}  // namespace

std::string ProgressLine(uint64_t done, std::optional<uint64_t> total,
                         absl::Duration elapsed) {
  constexpr uint64_t kWidth = 30;
  const double seconds = std::max(absl::ToDoubleSeconds(elapsed), 1e-3);
  const double megabytes = static_cast<double>(done) / kMegabyte;
  const double speed = megabytes / seconds;
  if (!total) return absl::StrFormat("%.1f MB  %.1f MB/s", megabytes, speed);
  const double share = *total == 0
                           ? 1
                           : std::min(1.0, static_cast<double>(done) /
                                               static_cast<double>(*total));
  const auto filled = static_cast<size_t>(share * kWidth);
  return absl::StrFormat(
      "%3.0f%% [%s%s] %.1f of %.1f MB  %.1f MB/s%s", 100 * share,
      std::string(filled, '#'), std::string(kWidth - filled, ' '), megabytes,
      static_cast<double>(*total) / kMegabyte, speed,
      done == 0 || done >= *total
          ? ""
          : TimeLeft(seconds * static_cast<double>(*total - done) /
                     static_cast<double>(done)));
}

Progress::Progress(ProgressMode mode, std::optional<uint64_t> total,
                   const std::string& label)
    : terminal_(isatty(STDERR_FILENO) == 1),
      enabled_(mode == ProgressMode::kAlways ||
               (mode == ProgressMode::kAuto && terminal_)),
      keep_(mode == ProgressMode::kAlways),
      total_(total),
      start_(absl::Now()),
      next_(keep_ ? start_ : start_ + absl::Seconds(1)) {
  SetLabel(label);
}

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

void Progress::SetLabel(const std::string& label) {
  label_ = label.empty() ? "" : absl::StrCat(Printable(label), " ");
}

void Progress::Draw(absl::Time now) {
  const std::string line =
      absl::StrCat(label_, ProgressLine(done_, total_, now - start_));
  if (terminal_) {
    absl::FPrintF(stderr, "\r%s\033[K", line);
  } else {
    absl::FPrintF(stderr, "%s\n", line);
  }
  drawn_ = true;
  next_ = now + (terminal_ ? absl::Milliseconds(100) : absl::Seconds(1));
}

}  // namespace kvcompress::cli
