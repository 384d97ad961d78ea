// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "watchdog.h"

#include <gtest/gtest.h>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"

namespace kvcompress {
namespace {

// A call that waits for its client, and says when it was cut off.
class WaitingCall : public WatchedCall {
 public:
  explicit WaitingCall(Watchdog* watchdog) : WatchedCall(watchdog, nullptr) {}

  using WatchedCall::BeginRead;

  absl::Notification cut;

 private:
  void EndCut(const absl::Status& status) override {
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
    cut.Notify();
  }
};

TEST(WatchdogTest, NoReadIsCutOffWhileItIsBegun) {
  Watchdog watchdog({.stall = absl::Milliseconds(1)});
  WaitingCall call(&watchdog);
  call.BeginRead([&] {
    EXPECT_FALSE(call.cut.WaitForNotificationWithTimeout(absl::Seconds(1)));
  });
  EXPECT_TRUE(call.cut.WaitForNotificationWithTimeout(absl::Seconds(20)));
}

}  // namespace
}  // namespace kvcompress
