// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "admission.h"

#include <algorithm>
#include <random>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kvcompress/error.h"

namespace kvcompress {
namespace {

constexpr char kRetryPayload[] = "kvcompress/retry-after-milliseconds";

// The more are rejected, the longer they are asked to stay away, each for
// another time so that they do not come back as one.
constexpr double kFirstDelay = 0.1;     // seconds
constexpr double kLongestDelay = 10.0;  // seconds
constexpr uint32_t kMaxRefused = 100;   // counted: more do not delay further
// How many are refused for each that is let in, when a client's streams have
// come to an even pace: so that whatever ends is soon followed by another, and
// little is spent on saying no.
constexpr uint32_t kRefusedForOne = 2;

// How many clients that hold nothing are remembered: enough to be fair among,
// few enough to be no attack.
constexpr size_t kMaxClients = 4096;

absl::Duration Around(double mean) {
  thread_local std::minstd_rand random{std::random_device{}()};
  return absl::Seconds(
      std::uniform_real_distribution<double>(0.5 * mean, 1.5 * mean)(random));
}

absl::Status TooLarge(uint64_t bytes, uint64_t limit) {
  return MakeError(
      absl::StatusCode::kOutOfRange,
      absl::StrCat("the call needs about ", bytes,
                   " bytes of memory, more than the ", limit,
                   " bytes that the server allows for it by its memory limit, "
                   "--memory-budget-bytes and --client-budget-percent"),
      {.reason = "EXCEEDS_BUDGET", .limit = limit});
}

absl::Status Full(uint64_t limit, absl::Duration delay) {
  absl::Status status =
      MakeError(absl::StatusCode::kResourceExhausted,
                "the server's memory budget is exhausted; try again later",
                {.reason = "BUDGET_EXHAUSTED", .limit = limit});
  status.SetPayload(kRetryPayload,
                    absl::Cord(absl::StrCat(absl::ToInt64Milliseconds(delay))));
  return status;
}

}  // namespace

absl::Status MemoryBudget::Change(absl::string_view client, uint64_t from,
                                  uint64_t to) {
  if (limit_ == 0 || from == to) return absl::OkStatus();
  if (to > from) return Grow(client, from, to);
  Shrink(client, from - to);
  return absl::OkStatus();
}

absl::Status MemoryBudget::Grow(absl::string_view client, uint64_t from,
                                uint64_t to) {
  if (to > client_limit_) return TooLarge(to, client_limit_);
  const absl::Time now = absl::Now();
  const std::lock_guard lock(mutex_);
  const auto found = clients_.find(client);
  const uint64_t others = reserved_ - from;
  const uint64_t own =
      found == clients_.end() ? 0 : found->second.reserved - from;
  const bool fits = others <= limit_ - to && own <= client_limit_ - to;
  const bool has_its_part = own > 0 && own + to > FairPart(client, now);
  if (!fits || has_its_part) {
    return Full(limit_, Turn(client, own == 0 && others > 0, now));
  }
  Share& share = clients_[std::string(client)];
  share.reserved = own + to;
  share.waits_until = absl::InfinitePast();
  if (from == 0) share.refused -= std::min(share.refused, kRefusedForOne);
  reserved_ = others + to;
  return absl::OkStatus();
}

bool MemoryBudget::GrowIfSpare(absl::string_view client, uint64_t from,
                               uint64_t to) {
  if (limit_ == 0) return true;
  const absl::Time now = absl::Now();
  const std::lock_guard lock(mutex_);
  const auto found = clients_.find(client);
  if (found == clients_.end() || to > limit_) return false;
  const uint64_t all = reserved_ - from + to;
  const uint64_t own = found->second.reserved - from + to;
  if (all > limit_ / 2 || own > client_limit_ || own > FairPart(client, now)) {
    return false;
  }
  found->second.reserved = own;
  reserved_ = all;
  return true;
}

void MemoryBudget::Shrink(absl::string_view client, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  reserved_ -= bytes;
  const auto found = clients_.find(client);
  Share& share = found->second;
  share.reserved -= bytes;
  if (share.reserved == 0 && share.waits_until <= absl::Now()) {
    clients_.erase(found);
  }
}

uint64_t MemoryBudget::FairPart(absl::string_view client,
                                absl::Time now) const {
  uint64_t active = 1;
  bool waited_for = false;
  for (const auto& [name, share] : clients_) {
    if (name == client) continue;
    const bool waits = share.waits_until > now;
    waited_for |= waits;
    active += waits || share.reserved > 0 ? 1 : 0;
  }
  return waited_for ? limit_ / active : limit_;
}

absl::Duration MemoryBudget::Turn(absl::string_view client, bool favoured,
                                  absl::Time now) {
  double waiting = 1;
  for (auto at = clients_.begin(); at != clients_.end();) {
    const auto here = at++;
    const bool waits = here->second.waits_until > now;
    if (!waits && here->second.reserved == 0) {
      clients_.erase(here);
    } else if (waits && here->first != client) {
      ++waiting;
    }
  }
  if (clients_.size() >= kMaxClients && !clients_.contains(client)) {
    return Around(kLongestDelay);
  }
  Share& share = clients_[std::string(client)];
  const double mean = kFirstDelay * (waiting + (favoured ? 0 : share.refused));
  share.refused = std::min(share.refused + 1, kMaxRefused);
  const absl::Duration delay = Around(std::min(mean, kLongestDelay));
  share.waits_until = now + 2 * delay + absl::Seconds(1);
  return delay;
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
