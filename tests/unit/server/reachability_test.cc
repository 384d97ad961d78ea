// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "reachability.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace kvcompress {
namespace {

const absl::Status kBroken = absl::DeadlineExceededError("no answer");
const absl::Status kFull = absl::ResourceExhaustedError("full");

// A server that answers as it is told.
class Watched {
 public:
  explicit Watched(absl::Duration lost_after = absl::InfiniteDuration())
      : reachability_({{"127.0.0.1", 1, ""}, {"127.0.0.1", 2, ""}},
                      {.interval = absl::Milliseconds(4),
                       .failures = 2,
                       .lost_after = lost_after},
                      {[this](const ListenAddress& address) {
                         const std::lock_guard lock(mutex_);
                         ++dials_;
                         changed_.notify_all();
                         return address.port == 2 ? answer_ : absl::OkStatus();
                       },
                       [this](const absl::Status& status) {
                         const std::lock_guard lock(mutex_);
                         told_.push_back(status);
                         changed_.notify_all();
                       },
                       [this] {
                         const std::lock_guard lock(mutex_);
                         ++lost_;
                         changed_.notify_all();
                       }}) {}

  void Answer(const absl::Status& status) {
    const std::lock_guard lock(mutex_);
    answer_ = status;
  }
  template <typename Condition>
  bool Wait(Condition condition) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(10), condition);
  }
  // After `count` more dials, all judged but perhaps the last.
  void WaitDials(int count) {
    int until = 0;
    {
      const std::lock_guard lock(mutex_);
      until = dials_ + count;
    }
    EXPECT_TRUE(Wait([&] { return dials_ >= until; }));
  }

  const std::vector<absl::Status>& told() const { return told_; }
  int lost() const { return lost_; }
  Reachability& reachability() { return reachability_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  absl::Status answer_;
  std::vector<absl::Status> told_;
  int dials_ = 0;
  int lost_ = 0;
  Reachability reachability_;
};

TEST(Reachability, TellsOfChangesAlone) {
  Watched watched;
  watched.WaitDials(8);
  watched.Answer(kBroken);
  EXPECT_TRUE(watched.Wait([&] { return watched.told().size() == 1; }));
  EXPECT_EQ(watched.told()[0],
            absl::DeadlineExceededError("127.0.0.1:2: no answer"));
  watched.WaitDials(8);
  watched.Answer(absl::OkStatus());
  EXPECT_TRUE(watched.Wait([&] { return watched.told().size() == 2; }));
  EXPECT_TRUE(watched.told()[1].ok());
  watched.WaitDials(8);
  watched.reachability().Stop();
  EXPECT_EQ(watched.told().size(), 2u);
  EXPECT_TRUE(watched.reachability().alive());
}

TEST(Reachability, IsLostAfterAWhileAndOnce) {
  Watched watched(absl::Milliseconds(20));
  watched.Answer(kBroken);
  EXPECT_TRUE(watched.Wait([&] { return watched.lost() == 1; }));
  watched.WaitDials(40);
  watched.reachability().Stop();
  EXPECT_EQ(watched.lost(), 1);
  EXPECT_TRUE(watched.reachability().lost());
  EXPECT_FALSE(watched.reachability().alive());
}

TEST(Reachability, IsNotLostForBeingFull) {
  Watched watched(absl::Milliseconds(1));
  watched.Answer(kFull);
  EXPECT_TRUE(watched.Wait([&] { return watched.told().size() == 1; }));
  watched.WaitDials(40);
  watched.reachability().Stop();
  EXPECT_FALSE(watched.reachability().lost());
  EXPECT_TRUE(watched.reachability().alive());
}

}  // namespace
}  // namespace kvcompress
