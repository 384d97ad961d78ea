// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "worker_pool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "support/eventually.h"

namespace kvcompress {
namespace {

TEST(WorkerPoolTest, OneThreadKeepsTheOrder) {
  std::vector<int> order;
  {
    WorkerPool pool(1);
    for (int i = 0; i < 100; ++i) {
      pool.Run("a", [&order, i] { order.push_back(i); });
    }
  }
  ASSERT_EQ(order.size(), 100);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[i], i);
}

TEST(WorkerPoolTest, AsManyAtOnceAsThereAreThreads) {
  std::atomic<int> together = 0;
  std::atomic<bool> met = false;
  {
    WorkerPool pool(3);
    for (int i = 0; i < 3; ++i) {
      pool.Run("a", [&] {
        ++together;
        if (testing::Eventually([&] { return together == 3; })) met = true;
      });
    }
  }
  EXPECT_TRUE(met);
}

TEST(WorkerPoolTest, WhoAsksDoesNotWait) {
  std::atomic<bool> asked = false;
  bool waited = false;
  {
    WorkerPool pool(1);
    pool.Run("a", [&] {
      waited = testing::Eventually([&] { return bool{asked}; });
    });
    pool.Run("a", [] {});
    asked = true;
  }
  EXPECT_TRUE(waited);
}

TEST(WorkerPoolTest, TasksMayAskForMore) {
  std::atomic<int> ran = 0;
  absl::Notification last;
  WorkerPool pool(2);
  std::function<void()> again = [&] {
    if (++ran == 1000) return last.Notify();
    pool.Run("a", again);
  };
  pool.Run("a", again);
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
        for (int n = 0; n < 1000; ++n) pool.Run("a", [&] { ++ran; });
      });
    }
    for (std::thread& asker : askers) asker.join();
  }
  EXPECT_EQ(ran, 4000);
  EXPECT_GE(WorkerPool::Processors(), 1);
}

// The order in which one thread runs what three clients wait for; nothing if
// they waited long enough for another thread, which takes those first.
std::optional<std::string> OrderOfTurns() {
  std::mutex mutex;
  std::string order;
  unsigned threads = 0;
  {
    WorkerPool pool(1);
    absl::Notification go;
    absl::Notification begun;
    pool.Run("a", [&] {
      begun.Notify();
      go.WaitForNotification();
    });
    begun.WaitForNotification();
    const auto note = [&](char client) {
      return [&, client] {
        const std::lock_guard lock(mutex);
        order += client;
        // One that was added stays for longer than this takes.
        threads = std::max(threads, pool.threads());
      };
    };
    for (int i = 0; i < 3; ++i) pool.Run("a", note('a'));
    for (int i = 0; i < 2; ++i) pool.Run("b", note('b'));
    pool.Run("c", note('c'));
    go.Notify();
  }
  if (threads > 1) return std::nullopt;
  return order;
}

TEST(WorkerPoolTest, ClientsTakeTurns) {
  std::optional<std::string> order;
  EXPECT_TRUE(testing::Eventually([&] {
    order = OrderOfTurns();
    return order.has_value();
  }));
  EXPECT_EQ(order, "abcaba");
}

TEST(WorkerPoolTest, ClientsTakeTurnsAtHelp) {
  std::string order;
  {
    WorkerPool pool(1);
    absl::Notification go;
    absl::Notification begun;
    pool.Help("a", [&] {
      begun.Notify();
      go.WaitForNotification();
    });
    begun.WaitForNotification();
    for (int i = 0; i < 2; ++i) pool.Help("a", [&] { order += 'a'; });
    pool.Help("b", [&] { order += 'b'; });
    go.Notify();
  }
  EXPECT_EQ(order, "aba");
}

int NicenessOfThread() {
  return getpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)));
}

TEST(WorkerPoolTest, HelpersAreNicerThanCalls) {
  constexpr int kNicest = 19;
  int call = 0;
  int helper = 0;
  {
    WorkerPool pool(1);
    pool.Help("a", [&] { helper = NicenessOfThread(); });
    pool.Run("a", [&] { call = NicenessOfThread(); });
  }
  EXPECT_EQ(call, NicenessOfThread());
  EXPECT_EQ(helper, std::min(call + WorkerPool::kNicer, kNicest));
}

// A call of the same client, which has another that does not end, and helpers
// of that one.
TEST(WorkerPoolTest, WhatHelpsKeepsNoCallWaiting) {
  WorkerPool pool(2);
  absl::Notification go;
  std::atomic<int> blocked = 0;
  const auto block = [&] {
    ++blocked;
    go.WaitForNotification();
  };
  pool.Run("a", block);
  for (int i = 0; i < 2; ++i) pool.Help("a", block);
  EXPECT_TRUE(testing::Eventually([&] { return blocked == 3; }));
  for (int i = 0; i < 10; ++i) {
    absl::Notification served;
    pool.Run("a", [&] { served.Notify(); });
    served.WaitForNotification();
  }
  EXPECT_EQ(pool.threads(), 4);
  go.Notify();
}

// The only thread belongs to another for as long as that one likes.
// What helps may outlast the call that it helps, and ask for more.
TEST(WorkerPoolTest, HelpThatIsAskedForAtTheEndIsDropped) {
  for (int round = 0; round < 300; ++round) {
    std::atomic<int> left = 64;
    WorkerPool* asked = nullptr;
    std::function<void()> ask = [&] {
      if (left.fetch_sub(1) <= 0) return;
      asked->Help("a", ask);
      asked->Help("a", ask);
    };
    WorkerPool pool(1, {.most = 16});
    asked = &pool;
    pool.Help("a", ask);
  }
}

TEST(WorkerPoolTest, OneClientDoesNotKeepAnotherWaiting) {
  WorkerPool pool(1);
  absl::Notification go;
  for (int i = 0; i < 16; ++i) {
    pool.Run("many", [&] { go.WaitForNotification(); });
  }
  for (int i = 0; i < 10; ++i) {
    absl::Notification served;
    pool.Run("few", [&] { served.Notify(); });
    served.WaitForNotification();
  }
  EXPECT_EQ(pool.threads(), 2);
  go.Notify();
}

TEST(WorkerPoolTest, AClientAloneGetsNoMoreThreadsThanThereAre) {
  WorkerPool pool(2);
  absl::Notification go;
  std::atomic<int> begun = 0;
  for (int i = 0; i < 16; ++i) {
    pool.Run("many", [&] {
      ++begun;
      go.WaitForNotification();
    });
  }
  std::this_thread::sleep_for(4 * WorkerPool::kPatience);
  EXPECT_EQ(begun, 2);
  EXPECT_EQ(pool.threads(), 2);
  go.Notify();
}

TEST(WorkerPoolTest, ThereIsABoundToThreadsAndTheyEndAgain) {
  constexpr int kClients = 2 * static_cast<int>(WorkerPool::kMaxThreads);
  WorkerPool pool(1);
  absl::Notification go;
  std::atomic<int> begun = 0;
  std::atomic<int> ended = 0;
  for (int i = 0; i < kClients; ++i) {
    pool.Run(absl::StrCat(i), [&] {
      ++begun;
      go.WaitForNotification();
      ++ended;
    });
  }
  while (begun < static_cast<int>(WorkerPool::kMaxThreads)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::this_thread::sleep_for(4 * WorkerPool::kPatience);
  EXPECT_EQ(begun, WorkerPool::kMaxThreads);
  EXPECT_EQ(pool.threads(), WorkerPool::kMaxThreads);
  go.Notify();
  while (ended < kClients || pool.threads() > 1) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// Runs in a process of its own, which may have no more than so many threads.
void LimitThreads(rlim_t threads) {
  const rlimit limit = {.rlim_cur = threads, .rlim_max = threads};
  constexpr uid_t kNobody = 65534;
  if (setrlimit(RLIMIT_NPROC, &limit) != 0 || setuid(kNobody) != 0) exit(1);
}

bool MayLimitThreads() {
  if (getuid() != 0) return false;
  const pid_t child = fork();
  if (child == 0) {
    LimitThreads(1);
    try {
      std::thread([] {}).join();
    } catch (const std::system_error&) {
      _exit(0);
    }
    _exit(1);
  }
  int status = 0;
  return waitpid(child, &status, 0) == child && status == 0;
}

TEST(WorkerPoolDeathTest, TheSystemGivesFewThreads) {
  if (!MayLimitThreads()) GTEST_SKIP() << "threads cannot be limited here";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  // As many as there are do all of it, also for those who wait for long.
  EXPECT_EXIT(
      {
        LimitThreads(4);
        {
          WorkerPool pool(1000);
          if (pool.threads() < 1 || pool.threads() > 3) exit(1);
          // Dropped.
          for (int i = 0; i < 100; ++i) pool.Help("a", [] { exit(1); });
          for (int i = 0; i < 100; ++i) {
            pool.Run(absl::StrCat(i), [] {
              std::this_thread::sleep_for(std::chrono::milliseconds(10));
            });
          }
        }
        exit(0);
      },
      ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(
      {
        LimitThreads(1);
        try {
          const WorkerPool pool(2);
        } catch (const std::system_error&) {
          // Not exit(), which starts a thread that looks for leaks where the
          // address sanitizer is on.
          _exit(0);
        }
        _exit(1);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace kvcompress
