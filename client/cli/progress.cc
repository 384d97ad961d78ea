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
  constexpr double kMaxSeconds = 360000;  // 100 hours
  const auto whole =
      static_cast<int>(std::ceil(std::min(seconds, kMaxSeconds)));
  const int minutes = whole / 60 % 60;
  return whole < 3600 ? absl::StrFormat("  %d:%02d left", minutes, whole % 60)
                      : absl::StrFormat("  %d:%02d:%02d left", whole / 3600,
                                        minutes, whole % 60);
}

}  // namespace

std::string ProgressLine(uint64_t done, std::optional<uint64_t> total,
                         absl::Duration elapsed, ProgressUnit unit) {
  constexpr uint64_t kWidth = 30;
  const double seconds = std::max(absl::ToDoubleSeconds(elapsed), 1e-3);
  const auto amount = static_cast<double>(done);
  std::string counted;
  if (unit == ProgressUnit::kSteps) {
    counted = total ? absl::StrFormat("%d of %d steps", done, *total)
                    : absl::StrFormat("%d steps", done);
  } else {
    counted = absl::StrFormat("%.1f", amount / kMegabyte);
    if (total) {
      absl::StrAppendFormat(&counted, " of %.1f",
                            static_cast<double>(*total) / kMegabyte);
    }
    absl::StrAppendFormat(&counted, " MB  %.1f MB/s",
                          amount / kMegabyte / seconds);
  }
  if (!total) return counted;
  const auto whole = static_cast<double>(*total);
  const double share = *total == 0 ? 1 : std::min(1.0, amount / whole);
  const auto filled = static_cast<size_t>(share * kWidth);
  return absl::StrFormat("%3.0f%% [%s%s] %s%s", 100 * share,
                         std::string(filled, '#'),
                         std::string(kWidth - filled, ' '), counted,
                         done == 0 || done >= *total
                             ? ""
                             : TimeLeft(seconds * (whole - amount) / amount));
}

Progress::Progress(ProgressMode mode, std::optional<uint64_t> total,
                   const std::string& label, ProgressUnit unit)
    : terminal_(isatty(STDERR_FILENO) == 1),
      enabled_(mode == ProgressMode::kAlways ||
               (mode == ProgressMode::kAuto && terminal_)),
      keep_(mode == ProgressMode::kAlways),
      total_(total),
      unit_(unit),
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

void Progress::Advance(uint64_t count) {
  done_ += count;
  if (!enabled_) return;
  const absl::Time now = absl::Now();
  if (now >= next_) Draw(now);
}

void Progress::SetLabel(const std::string& label) {
  label_ = label.empty() ? "" : absl::StrCat(Printable(label), " ");
}

void Progress::Draw(absl::Time now) {
  const std::string line =
      absl::StrCat(label_, ProgressLine(done_, total_, now - start_, unit_));
  if (terminal_) {
    absl::FPrintF(stderr, "\r%s\033[K", line);
  } else {
    absl::FPrintF(stderr, "%s\n", line);
  }
  drawn_ = true;
  next_ = now + (terminal_ ? absl::Milliseconds(100) : absl::Seconds(1));
}

}  // namespace kvcompress::cli
