// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "worker_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "absl/synchronization/barrier.h"
#include "absl/synchronization/notification.h"

namespace kvcompress {
namespace {

TEST(WorkerPoolTest, OneThreadKeepsTheOrder) {
  std::vector<int> order;
  {
    WorkerPool pool(1);
    for (int i = 0; i < 100; ++i) {
      pool.Run([&order, i] { order.push_back(i); });
    }
  }
  ASSERT_EQ(order.size(), 100);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[i], i);
}

TEST(WorkerPoolTest, AsManyAtOnceAsThereAreThreads) {
  // Three that wait for one another, and for whoever asked.
  absl::Barrier together(4);
  WorkerPool pool(3);
  for (int i = 0; i < 3; ++i) pool.Run([&] { together.Block(); });
  together.Block();
}

TEST(WorkerPoolTest, WhoAsksDoesNotWait) {
  WorkerPool pool(1);
  absl::Notification asked;
  pool.Run([&] { asked.WaitForNotification(); });
  pool.Run([] {});
  asked.Notify();
}

TEST(WorkerPoolTest, TasksMayAskForMore) {
  std::atomic<int> ran = 0;
  absl::Notification last;
  WorkerPool pool(2);
  std::function<void()> again = [&] {
    if (++ran == 1000) return last.Notify();
    pool.Run(again);
  };
  pool.Run(again);
  last.WaitForNotification();
  EXPECT_EQ(ran, 1000);
}

TEST(WorkerPoolTest, EverythingThatCameIsRun) {
  std::atomic<int> ran = 0;
  {
    WorkerPool pool(4);
    std::vector<std::thread> askers;
    for (int i = 0; i < 4; ++i) {
      askers.emplace_back([&] {
        for (int n = 0; n < 1000; ++n) pool.Run([&] { ++ran; });
      });
    }
    for (std::thread& asker : askers) asker.join();
  }
  EXPECT_EQ(ran, 4000);
  EXPECT_GE(WorkerPool::Processors(), 1);
}

}  // namespace
}  // namespace kvcompress
