// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "telemetry/load_history.h"

#include <algorithm>

namespace kvcompress {
namespace {

int64_t SlotOf(absl::Time now) {
  return (now - absl::UnixEpoch()) / LoadHistory::kSlotLength;
}

}  // namespace

LoadHistory::LoadHistory(absl::Time now)
    : newest_(SlotOf(now)), slots_(kSlots) {}

LoadHistory::Slot& LoadHistory::Current(absl::Time now) {
  const int64_t slot = SlotOf(now);
  const int64_t passed = std::clamp<int64_t>(slot - newest_, 0, kSlots);
  for (int64_t i = 0; i < passed; ++i) {
    slots_.pop_front();
    slots_.push_back({.peak_bytes = reserved_});
  }
  newest_ = std::max(newest_, slot);
  return slots_.back();
}

void LoadHistory::Handled(absl::Time now, bool ok) {
  Slot& slot = Current(now);
  ++(ok ? slot.ok : slot.failed);
}

void LoadHistory::Reserved(absl::Time now, int64_t bytes) {
  Slot& slot = Current(now);
  reserved_ = bytes;
  slot.peak_bytes = std::max(slot.peak_bytes, bytes);
}

const std::deque<LoadHistory::Slot>& LoadHistory::Slots(absl::Time now) {
  Current(now);
  return slots_;
}

}  // namespace kvcompress
