// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "pipeline/job_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kvcompress/checkpoint.h"
#include "support/eventually.h"
#include "support/lent_threads.h"
#include "tensor/workers.h"

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

TEST(JobQueueTest, AllThreadsWorkWhileTheOneThatCallsIsElsewhere) {
  Lent lent(3);
  JobQueue queue(lent.Give(3));
  std::atomic<int> together = 0;
  std::vector<std::shared_ptr<Job>> jobs;
  for (int i = 0; i < 3; ++i) {
    jobs.push_back(std::make_shared<Call>([&] {
      ++together;
      EXPECT_TRUE(testing::Eventually([&] { return together == 3; }));
    }));
    queue.Add(jobs.back());
  }
  for (const std::shared_ptr<Job>& job : jobs) {
    EXPECT_TRUE(testing::Eventually([&] { return queue.IsDone(*job); }));
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

// What memory was missing for in a job was once an unknown error of those that
// came after it.
TEST(JobQueueTest, AJobAfterOneThatThrewThrowsTheSame) {
  for (const int threads : {1, 3}) {
    Lent lent(threads);
    JobQueue queue(lent.Give(threads));
    bool ran = false;
    const auto first = std::make_shared<Call>([] { throw std::bad_alloc(); });
    const auto second = std::make_shared<Call>([&] { ran = true; });
    const auto third = std::make_shared<Call>([&] { ran = true; });
    second->RunAfter(first);
    third->RunAfter(second);
    for (const auto& job : {first, second, third}) queue.Add(job);
    EXPECT_THROW(queue.Wait(third, /*checkpoint=*/nullptr), std::bad_alloc);
    EXPECT_FALSE(ran);
  }
}

// Helpers that had found nothing to do were not called back: what waited for a
// group was decoded by two threads, however many there were.
TEST(JobQueueTest, JobsThatAnotherOneFreesAreDoneByAsManyThreads) {
  for (const bool by_helper : {true, false}) {
    std::vector<std::function<void()>> tasks;
    JobQueue queue({.count = 4, .run = [&tasks](std::function<void()> task) {
                      tasks.push_back(std::move(task));
                    }});
    const auto run_tasks = [&tasks] {
      for (const auto& task : std::exchange(tasks, {})) task();
    };
    const auto first = std::make_shared<Call>(run_tasks);
    std::vector<std::shared_ptr<Job>> freed;
    queue.Add(first);
    for (int i = 0; i < 3; ++i) {
      freed.push_back(std::make_shared<Call>([] {}));
      freed.back()->RunAfter(first);
      queue.Add(freed.back());
    }
    if (by_helper) {
      const std::function<void()> helper = std::move(tasks.back());
      tasks.pop_back();
      helper();
    } else {
      EXPECT_TRUE(queue.Wait(first, /*checkpoint=*/nullptr));
    }
    EXPECT_TRUE(queue.IsDone(*first));
    EXPECT_EQ(tasks.size(), 3);
    run_tasks();
    for (const std::shared_ptr<Job>& job : freed) {
      EXPECT_TRUE(queue.IsDone(*job));
    }
  }
}

TEST(JobQueueTest, SharersHavePlacesOfTheirOwn) {
  Lent lent(2);
  JobQueue queue(lent.Give(3));
  queue.set_places(1);
  Sharers sharers(&queue, 3);
  std::atomic<int> together = 0;
  ForEach(&sharers, 3, [&](size_t, size_t) {
    ++together;
    EXPECT_TRUE(testing::Eventually([&] { return together == 3; }));
  });
  size_t places = 0;
  ForEach(&queue, 3, [&](size_t, size_t place) { places += place; });
  EXPECT_EQ(places, 0);
}

TEST(TryForEachTest, GivesTheErrorOfTheLowestIndexAfterAllAreDone) {
  Lent lent(3);
  JobQueue queue(lent.Give(4));
  for (Workers* workers :
       {static_cast<Workers*>(nullptr), static_cast<Workers*>(&queue)}) {
    std::atomic<size_t> done = 0;
    EXPECT_EQ(TryForEach(workers, 100, /*checkpoint=*/nullptr,
                         [&](size_t index, Checkpoint* checkpoint) {
                           EXPECT_EQ(checkpoint, nullptr);
                           ++done;
                           return index % 10 == 7
                                      ? absl::DataLossError(absl::StrCat(index))
                                      : absl::OkStatus();
                         }),
              absl::DataLossError("7"));
    EXPECT_EQ(done, 100);
    EXPECT_TRUE(TryForEach(workers, 100, nullptr, [](size_t, Checkpoint*) {
                  return absl::OkStatus();
                }).ok());
  }
}

TEST(TryForEachTest, EndsWhereItsCheckpointStops) {
  Lent lent(3);
  JobQueue queue(lent.Give(4));
  std::atomic<int> looks = 0;
  std::atomic<int> begun = 0;
  Checkpoint checkpoint([&] {
    return looks++ < 10 ? absl::OkStatus() : absl::CancelledError("not wanted");
  });
  EXPECT_EQ(TryForEach(&queue, 100, &checkpoint,
                       [&](size_t, Checkpoint*) {
                         ++begun;
                         return absl::DataLossError("is not told");
                       }),
            absl::CancelledError("not wanted"));
  EXPECT_EQ(begun, 10);
}

}  // namespace
}  // namespace kvcompress
