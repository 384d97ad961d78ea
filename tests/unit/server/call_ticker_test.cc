// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "call_ticker.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "support/eventually.h"

namespace kvcompress {
namespace {

TEST(CallTicker, HasTheThreadOfTheCallLook) {
  CallTicker calls(3);
  const std::unique_ptr<grpc::ContextAllocator> counter = calls.NewCounter();
  for (int i = 0; i < 3; ++i) counter->NewCallbackServerContext();
  std::vector<std::thread::id> looked;
  calls.SetLook([&] { looked.push_back(std::this_thread::get_id()); });
  for (int i = 0; i < 7; ++i) counter->NewCallbackServerContext();
  EXPECT_EQ(looked, std::vector(2, std::this_thread::get_id()));
  calls.Look();
  EXPECT_EQ(looked.size(), 3u);
  calls.SetLook(nullptr);
  for (int i = 0; i < 3; ++i) counter->NewGenericCallbackServerContext();
  calls.Look();
  EXPECT_EQ(looked.size(), 3u);
}

TEST(CallTicker, CountsStreamsThatBecomeNoCalls) {
  CallTicker calls(3);
  const std::unique_ptr<grpc::ContextAllocator> counter = calls.NewCounter();
  int looked = 0;
  calls.SetLook([&] { ++looked; });
  calls.Add();
  counter->NewCallbackServerContext();
  EXPECT_EQ(looked, 0);
  calls.Add();
  EXPECT_EQ(looked, 1);
}

TEST(CallTicker, WaitsForALookThatTakesLong) {
  CallTicker calls(3);
  const std::unique_ptr<grpc::ContextAllocator> counter = calls.NewCounter();
  absl::Notification looks;
  absl::Notification seen;
  std::atomic<int> looked = 0;
  calls.SetLook([&] {
    if (++looked > 1) return;
    looks.Notify();
    seen.WaitForNotification();
  });
  std::thread first([&] {
    for (int i = 0; i < 3; ++i) counter->NewCallbackServerContext();
  });
  looks.WaitForNotification();
  std::atomic<int> made = 0;
  std::thread second([&] {
    for (; made < 100; ++made) counter->NewCallbackServerContext();
  });
  // The first four ticks pass, and the call of the fifth waits.
  EXPECT_TRUE(testing::Eventually([&] { return made == 14; }));
  EXPECT_EQ(looked, 1);
  EXPECT_EQ(made, 14);
  seen.Notify();
  first.join();
  second.join();
  EXPECT_GT(looked, 1);
  EXPECT_EQ(made, 100);
}

}  // namespace
}  // namespace kvcompress
