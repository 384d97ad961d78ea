// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "admission.h"

#include <algorithm>
#include <random>
#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "kvcompress/error.h"

namespace kvcompress {
namespace {

constexpr char kRetryPayload[] = "kvcompress/retry-after-milliseconds";

// The more are turned away, the longer they are asked to stay away, each for
// another time so that they do not come back as one.
constexpr double kFirstDelay = 0.1;     // seconds
constexpr double kLongestDelay = 10.0;  // seconds

absl::Duration DrawDelay(uint32_t refused) {
  thread_local std::minstd_rand random{std::random_device{}()};
  const double mean = std::min(kFirstDelay * (1 + refused), kLongestDelay);
  return absl::Seconds(
      std::uniform_real_distribution<double>(0.5 * mean, 1.5 * mean)(random));
}

}  // namespace

absl::Status MemoryBudget::Change(uint64_t from, uint64_t to) {
  uint64_t reserved = reserved_.load(std::memory_order_relaxed);
  do {
    const uint64_t others = reserved - from;
    if (limit_ != 0 && to > from && (to > limit_ || others > limit_ - to)) {
      return Refuse(to);
    }
  } while (!reserved_.compare_exchange_weak(reserved, reserved - from + to,
                                            std::memory_order_relaxed));
  if (to > from) refused_.store(0, std::memory_order_relaxed);
  return absl::OkStatus();
}

absl::Status MemoryBudget::Refuse(uint64_t bytes) {
  if (bytes > limit_) {
    return MakeError(
        absl::StatusCode::kOutOfRange,
        absl::StrCat("the call needs about ", bytes,
                     " bytes of memory, more than the server has for all"),
        {.reason = "EXCEEDS_BUDGET", .limit = limit_});
  }
  const uint32_t refused = refused_.fetch_add(1, std::memory_order_relaxed);
  absl::Status status =
      MakeError(absl::StatusCode::kResourceExhausted,
                "the server is at its memory budget; try again later",
                {.reason = "BUDGET_EXHAUSTED", .limit = limit_});
  status.SetPayload(
      kRetryPayload,
      absl::Cord(absl::StrCat(absl::ToInt64Milliseconds(DrawDelay(refused)))));
  return status;
}

std::optional<absl::Duration> RetryDelayOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kRetryPayload);
  int64_t milliseconds = 0;
  if (!payload || !absl::SimpleAtoi(std::string(*payload), &milliseconds)) {
    return std::nullopt;
  }
  return absl::Milliseconds(milliseconds);
}

}  // namespace kvcompress
