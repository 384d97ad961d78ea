// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// A progress bar on standard error.

#ifndef KVCOMPRESS_CLIENT_CLI_PROGRESS_H_
#define KVCOMPRESS_CLIENT_CLI_PROGRESS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "client/cli/flags.h"

namespace kvcompress::cli {

// What is counted.
enum class ProgressUnit { kBytes, kSteps };

// One line: percentage, bar, what is done of how much, speed of bytes, and the
// time left at that speed; without a total, what is done and the speed.
std::string ProgressLine(uint64_t done, std::optional<uint64_t> total,
                         absl::Duration elapsed,
                         ProgressUnit unit = ProgressUnit::kBytes);

// Not thread safe. On a terminal the line is redrawn in place ten times a
// second, elsewhere one is written each second. In ProgressMode::kAuto nothing
// is drawn in the first second, and the line is wiped at the end.
class Progress {
 public:
  Progress(ProgressMode mode, std::optional<uint64_t> total,
           const std::string& label = "",
           ProgressUnit unit = ProgressUnit::kBytes);
  ~Progress();

  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void Advance(uint64_t count);

  // Stands before the line from now on.
  void SetLabel(const std::string& label);

 private:
  void Draw(absl::Time now);

  const bool terminal_;
  const bool enabled_;
  const bool keep_;  // whether the last line stays
  const std::optional<uint64_t> total_;
  const ProgressUnit unit_;
  const absl::Time start_;
  absl::Time next_;  // when to draw again
  uint64_t done_ = 0;
  bool drawn_ = false;
  std::string label_;  // with a space behind it, or empty
};

}  // namespace kvcompress::cli

#endif  // KVCOMPRESS_CLIENT_CLI_PROGRESS_H_
