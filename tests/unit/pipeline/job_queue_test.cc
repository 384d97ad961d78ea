// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "pipeline/job_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "support/lent_threads.h"

namespace kvcompress {
namespace {

using testing::Lent;

class Call final : public Job {
 public:
  explicit Call(std::function<void()> run) : run_(std::move(run)) {}

 private:
  void Run() override { run_(); }
  const std::function<void()> run_;
};

// The time limit of the test is the one that a queue would break which leaves
// the place of the one that calls empty.
TEST(JobQueueTest, AllThreadsWorkWhileTheOneThatCallsIsElsewhere) {
  Lent lent(3);
  JobQueue queue(lent.Give(3));
  std::atomic<int> together = 0;
  std::vector<std::shared_ptr<Job>> jobs;
  for (int i = 0; i < 3; ++i) {
    jobs.push_back(std::make_shared<Call>([&] {
      ++together;
      while (together < 3) std::this_thread::yield();
    }));
    queue.Add(jobs.back());
  }
  for (const std::shared_ptr<Job>& job : jobs) {
    while (!queue.IsDone(*job)) std::this_thread::yield();
  }
}

TEST(JobQueueTest, NoMoreWorkThanMay) {
  Lent lent(8);
  JobQueue queue(lent.Give(2));
  std::atomic<int> working = 0;
  std::atomic<int> most = 0;
  std::vector<std::shared_ptr<Job>> jobs;
  for (int i = 0; i < 200; ++i) {
    jobs.push_back(std::make_shared<Call>([&] {
      const int now = ++working;
      for (int seen = most; now > seen;) {
        if (most.compare_exchange_weak(seen, now)) break;
      }
      std::this_thread::yield();
      --working;
    }));
    queue.Add(jobs.back());
    if (i % 3 == 2) {
      EXPECT_TRUE(queue.Wait(jobs[i - 1], /*checkpoint=*/nullptr));
    }
  }
  for (const std::shared_ptr<Job>& job : jobs) {
    EXPECT_TRUE(queue.Wait(job, /*checkpoint=*/nullptr));
  }
  EXPECT_LE(most.load(), 2);
}

}  // namespace
}  // namespace kvcompress
