// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "admission.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "errors.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "kvcompress/error.h"

namespace kvcompress {
namespace {

TEST(MemoryBudgetTest, TakesWhatFits) {
  MemoryBudget budget(100);
  EXPECT_TRUE(budget.Change(0, 60).ok());
  EXPECT_TRUE(budget.Change(0, 40).ok());
  EXPECT_EQ(budget.Change(0, 1).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(budget.Change(60, 20).ok());
  EXPECT_TRUE(budget.Change(0, 40).ok());
  EXPECT_FALSE(budget.Change(40, 41).ok());
  EXPECT_TRUE(budget.Change(40, 0).ok());
}

TEST(MemoryBudgetTest, WhatNeverFitsIsAnotherError) {
  MemoryBudget budget(100);
  const absl::Status status = budget.Change(40, 101);
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(GetErrorDetail(status)->reason, "EXCEEDS_BUDGET");
  EXPECT_EQ(GetErrorDetail(status)->limit, 100);
  EXPECT_FALSE(RetryDelayOf(status).has_value());
}

TEST(MemoryBudgetTest, WithoutABoundEverythingFits) {
  MemoryBudget budget(0);
  EXPECT_TRUE(budget.Change(0, uint64_t{1} << 60).ok());
}

TEST(MemoryBudgetTest, TheMoreAreRefusedTheLongerTheyWait) {
  MemoryBudget budget(1);
  ASSERT_TRUE(budget.Change(0, 1).ok());
  const auto delay = [&] { return *RetryDelayOf(budget.Change(0, 1)); };
  const absl::Duration first = delay();
  EXPECT_GE(first, absl::Milliseconds(50));
  EXPECT_LE(first, absl::Milliseconds(150));
  for (int i = 0; i < 200; ++i) delay();
  EXPECT_GE(delay(), absl::Seconds(5));
  EXPECT_LE(delay(), absl::Seconds(15));
}

TEST(MemoryBudgetTest, ThreadsNeverPassTheBound) {
  MemoryBudget budget(10);
  std::vector<std::thread> threads;
  std::atomic<int> held = 0, most = 0;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < 20000; ++n) {
        if (!budget.Change(0, 4).ok()) continue;
        const int now = held += 4;
        int before = most;
        while (now > before && !most.compare_exchange_weak(before, now)) {
        }
        held -= 4;
        budget.Change(4, 0).IgnoreError();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(most, 8);
  EXPECT_TRUE(budget.Change(0, 10).ok());
}

TEST(MemoryBudgetTest, TheErrorSaysWhenToComeBack) {
  MemoryBudget budget(1);
  ASSERT_TRUE(budget.Change(0, 1).ok());
  const absl::Status status = budget.Change(0, 1);
  google::rpc::Status details;
  ASSERT_TRUE(details.ParseFromString(ToGrpcStatus(status).error_details()));
  ASSERT_EQ(details.details_size(), 2);
  google::rpc::ErrorInfo info;
  google::rpc::RetryInfo retry;
  ASSERT_TRUE(details.details(0).UnpackTo(&info));
  ASSERT_TRUE(details.details(1).UnpackTo(&retry));
  EXPECT_EQ(info.reason(), "BUDGET_EXHAUSTED");
  EXPECT_EQ(absl::Seconds(retry.retry_delay().seconds()) +
                absl::Nanoseconds(retry.retry_delay().nanos()),
            *RetryDelayOf(status));
}

}  // namespace
}  // namespace kvcompress
