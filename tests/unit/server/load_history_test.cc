// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "telemetry/load_history.h"

#include <gtest/gtest.h>

namespace kvcompress {
namespace {

constexpr absl::Duration kSlot = LoadHistory::kSlotLength;

TEST(LoadHistoryTest, CountsCallsBySlot) {
  const absl::Time start = absl::UnixEpoch() + absl::Hours(1);
  LoadHistory history(start);
  history.Handled(start, true);
  history.Handled(start + kSlot / 2, false);
  history.Handled(start + 2 * kSlot, true);
  const auto& slots = history.Slots(start + 3 * kSlot);
  ASSERT_EQ(slots.size(), LoadHistory::kSlots);
  EXPECT_EQ(slots[56].ok, 1);
  EXPECT_EQ(slots[56].failed, 1);
  EXPECT_EQ(slots[57].ok, 0);
  EXPECT_EQ(slots[58].ok, 1);
  EXPECT_EQ(slots[59].ok, 0);
}

TEST(LoadHistoryTest, WhatStaysReservedIsThePeakOfLaterSlots) {
  const absl::Time start = absl::UnixEpoch() + absl::Hours(1);
  LoadHistory history(start);
  history.Reserved(start, 100);
  history.Reserved(start, 40);
  EXPECT_EQ(history.Slots(start).back().peak_bytes, 100);
  EXPECT_EQ(history.Slots(start + kSlot).back().peak_bytes, 40);
  history.Reserved(start + kSlot, 0);
  const auto& slots = history.Slots(start + 2 * kSlot);
  EXPECT_EQ(slots[57].peak_bytes, 100);
  EXPECT_EQ(slots[58].peak_bytes, 40);
  EXPECT_EQ(slots[59].peak_bytes, 0);
}

TEST(LoadHistoryTest, ForgetsWhatIsOldAndBearsClocksThatAreSetBack) {
  const absl::Time start = absl::UnixEpoch() + absl::Hours(1);
  LoadHistory history(start);
  history.Handled(start, true);
  history.Handled(start - absl::Minutes(30), true);
  EXPECT_EQ(history.Slots(start).back().ok, 2);
  for (const LoadHistory::Slot& slot : history.Slots(start + absl::Hours(9))) {
    EXPECT_EQ(slot.ok, 0);
  }
}

}  // namespace
}  // namespace kvcompress
