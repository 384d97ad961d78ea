// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "admission.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "errors.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "kvcompress/error.h"

namespace kvcompress {
namespace {

TEST(MemoryBudgetTest, TakesWhatFits) {
  MemoryBudget budget(100);
  EXPECT_TRUE(budget.Change("a", 0, 60).ok());
  EXPECT_TRUE(budget.Change("a", 0, 40).ok());
  EXPECT_EQ(budget.Change("a", 0, 1).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(budget.Change("a", 60, 20).ok());
  EXPECT_TRUE(budget.Change("a", 0, 40).ok());
  EXPECT_FALSE(budget.Change("a", 40, 41).ok());
  EXPECT_TRUE(budget.Change("a", 40, 0).ok());
}

TEST(MemoryBudgetTest, WhatNeverFitsIsAnotherError) {
  MemoryBudget budget(100);
  const absl::Status status = budget.Change("a", 40, 101);
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(GetErrorDetail(status)->reason, "EXCEEDS_BUDGET");
  EXPECT_EQ(GetErrorDetail(status)->limit, 100);
  EXPECT_FALSE(RetryDelayOf(status).has_value());
}

TEST(MemoryBudgetTest, WhatAStreamCanDoWithoutLeavesHalf) {
  MemoryBudget budget(100);
  ASSERT_TRUE(budget.Change("a", 0, 20).ok());
  EXPECT_FALSE(budget.GrowIfSpare("a", 20, 51));
  EXPECT_TRUE(budget.GrowIfSpare("a", 20, 40));
  ASSERT_TRUE(budget.Change("b", 0, 50).ok());
  EXPECT_FALSE(budget.GrowIfSpare("a", 40, 41));
  // Nobody was refused by that: the delay is that of the first.
  EXPECT_LE(*RetryDelayOf(budget.Change("b", 0, 50)), absl::Milliseconds(300));
  EXPECT_TRUE(budget.Change("a", 40, 0).ok());
  EXPECT_TRUE(budget.Change("b", 50, 0).ok());
}

TEST(MemoryBudgetTest, WithoutABoundEverythingFits) {
  MemoryBudget budget(0);
  EXPECT_TRUE(budget.Change("a", 0, uint64_t{1} << 60).ok());
}

TEST(MemoryBudgetTest, TheMoreAreRefusedTheLongerTheyWait) {
  MemoryBudget budget(1);
  ASSERT_TRUE(budget.Change("a", 0, 1).ok());
  const auto delay = [&] { return *RetryDelayOf(budget.Change("a", 0, 1)); };
  const absl::Duration first = delay();
  EXPECT_GE(first, absl::Milliseconds(50));
  EXPECT_LE(first, absl::Milliseconds(150));
  for (int i = 0; i < 200; ++i) delay();
  EXPECT_GE(delay(), absl::Seconds(5));
  EXPECT_LE(delay(), absl::Seconds(15));
}

TEST(MemoryBudgetTest, WhoIsSeldomLetInIsSeldomAskedBack) {
  MemoryBudget budget(1);
  ASSERT_TRUE(budget.Change("a", 0, 1).ok());
  const auto refuse = [&] { return *RetryDelayOf(budget.Change("a", 0, 1)); };
  const auto let_in = [&] {
    budget.Change("a", 1, 0).IgnoreError();
    ASSERT_TRUE(budget.Change("a", 0, 1).ok());
  };
  for (int i = 0; i < 200; ++i) refuse();
  // One that is let in does not bring all the others back at once...
  let_in();
  EXPECT_GE(refuse(), absl::Seconds(4));
  // ...and many do.
  for (int i = 0; i < 50; ++i) let_in();
  EXPECT_LE(refuse(), absl::Milliseconds(150));
}

// Whether another stream of 4 fits for a client.
bool LetIn(MemoryBudget* budget, const char* client) {
  return budget->Change(client, 0, 4).ok();
}

TEST(FairnessTest, OneAloneMayHaveEverything) {
  MemoryBudget budget(40);
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(LetIn(&budget, "a"));
  EXPECT_FALSE(LetIn(&budget, "a"));
}

TEST(FairnessTest, WhatEndsMakesRoomForWhoHasNothing) {
  MemoryBudget budget(40);
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(LetIn(&budget, "many"));
  EXPECT_FALSE(LetIn(&budget, "one"));
  budget.Change("many", 4, 0).IgnoreError();
  // Whoever is first.
  EXPECT_FALSE(LetIn(&budget, "many"));
  EXPECT_TRUE(LetIn(&budget, "one"));
}

TEST(FairnessTest, PartsBecomeEqual) {
  MemoryBudget budget(40);
  int held[] = {0, 0};
  const char* const names[] = {"many", "few"};
  while (LetIn(&budget, "many")) ++held[0];
  for (int turn = 0; turn < 100; ++turn) {
    const int client = turn % 2;
    if (LetIn(&budget, names[client])) ++held[client];
    if (held[0] > 0 && turn % 3 == 0) {
      budget.Change("many", 4, 0).IgnoreError();
      --held[0];
    }
    if (LetIn(&budget, "many")) ++held[0];
    EXPECT_LE(held[0] + held[1], 10);
  }
  EXPECT_GE(held[1], 4);
}

TEST(FairnessTest, TheFirstStreamOfAClientNeedsNoPart) {
  MemoryBudget budget(8);
  EXPECT_TRUE(LetIn(&budget, "a"));
  EXPECT_TRUE(LetIn(&budget, "b"));
  for (const char* client : {"c", "d", "e", "f"}) {
    EXPECT_FALSE(LetIn(&budget, client));
  }
  budget.Change("a", 4, 0).IgnoreError();
  // An equal part would be less than a stream.
  EXPECT_TRUE(LetIn(&budget, "f"));
}

TEST(FairnessTest, WhoHasNothingComesBackSoon) {
  MemoryBudget budget(4);
  ASSERT_TRUE(LetIn(&budget, "greedy"));
  for (int i = 0; i < 200; ++i) LetIn(&budget, "greedy");
  for (int i = 0; i < 50; ++i) {
    EXPECT_LE(*RetryDelayOf(budget.Change("other", 0, 4)),
              absl::Milliseconds(300));
  }
}

TEST(FairnessTest, WhoDoesNotComeBackIsNotWaitedForLong) {
  MemoryBudget budget(40);
  for (int i = 0; i < 9; ++i) ASSERT_TRUE(LetIn(&budget, "a"));
  const absl::Status refused = budget.Change("b", 0, 8);
  EXPECT_FALSE(LetIn(&budget, "a"));
  absl::SleepFor(2 * *RetryDelayOf(refused) + absl::Milliseconds(1100));
  EXPECT_TRUE(LetIn(&budget, "a"));
}

TEST(FairnessTest, OneClientMayBeHeldToAPart) {
  MemoryBudget budget(100, 50);
  EXPECT_TRUE(budget.Change("a", 0, 50).ok());
  const absl::Status full = budget.Change("a", 0, 1);
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(budget.Change("b", 0, 50).ok());
  const absl::Status never = budget.Change("c", 0, 51);
  EXPECT_EQ(never.code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(GetErrorDetail(never)->limit, 50);
}

TEST(MemoryBudgetTest, ThreadsNeverPassTheBound) {
  MemoryBudget budget(10);
  std::vector<std::thread> threads;
  std::atomic<int> held = 0, most = 0;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < 20000; ++n) {
        if (!budget.Change("a", 0, 4).ok()) continue;
        const int now = held += 4;
        int before = most;
        while (now > before && !most.compare_exchange_weak(before, now)) {
        }
        held -= 4;
        budget.Change("a", 4, 0).IgnoreError();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(most, 8);
  EXPECT_TRUE(budget.Change("a", 0, 10).ok());
}

TEST(MemoryBudgetTest, TheErrorSaysWhenToComeBack) {
  MemoryBudget budget(1);
  ASSERT_TRUE(budget.Change("a", 0, 1).ok());
  const absl::Status status = budget.Change("a", 0, 1);
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
