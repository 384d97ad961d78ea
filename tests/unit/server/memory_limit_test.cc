// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "memory_limit.h"

#include <gtest/gtest.h>

#include <string>

#include "admission.h"
#include "support/fake_root.h"

namespace kvcompress {
namespace {

constexpr uint64_t kMiB = 1 << 20;

class MemoryLimitTest : public testing::FakeRootTest {
 protected:
  void SetUp() override {
    FakeRootTest::SetUp();
    Write("/proc/meminfo", "MemTotal:       1048576 kB\nMemFree: 1 kB\n");
  }
};

TEST_F(MemoryLimitTest, MachineWithoutGroups) {
  EXPECT_EQ(MemoryLimit(root_), 1024 * kMiB);
}

TEST_F(MemoryLimitTest, GroupOfTheContainer) {
  Write("/proc/self/cgroup", "0::/\n");
  Write("/sys/fs/cgroup/memory.max", "268435456\n");
  EXPECT_EQ(MemoryLimit(root_), 256 * kMiB);
}

TEST_F(MemoryLimitTest, TheLeastOfTheGroupsAround) {
  Write("/proc/self/cgroup", "0::/a/b\n");
  Write("/sys/fs/cgroup/a/b/memory.max", "max\n");
  Write("/sys/fs/cgroup/a/memory.max", "134217728\n");
  EXPECT_EQ(MemoryLimit(root_), 128 * kMiB);
}

TEST_F(MemoryLimitTest, FirstVersionOfGroups) {
  Write("/proc/self/cgroup", "5:cpu:/x\n4:memory:/docker/y\n");
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "67108864\n");
  EXPECT_EQ(MemoryLimit(root_), 64 * kMiB);
}

TEST_F(MemoryLimitTest, NonsenseIsNoLimit) {
  Write("/proc/self/cgroup", "nonsense\n0::relative\n");
  Write("/sys/fs/cgroup/memory.max", "many\n");
  EXPECT_EQ(MemoryLimit(root_), 1024 * kMiB);
  EXPECT_EQ(MemoryLimit(root_ + "/nowhere"), 0);
}

TEST(DefaultMemoryBudgetTest, LeavesRoomForTheProcess) {
  EXPECT_EQ(DefaultMemoryBudget(1024 * kMiB), 480 * kMiB);
  EXPECT_EQ(DefaultMemoryBudget(0), 4 * kStreamBytes);
  EXPECT_EQ(DefaultMemoryBudget(64 * kMiB), 4 * kStreamBytes);
}

TEST(BufferQuotaTest, WhatTheLimitLeavesAndTheStreamsNeed) {
  EXPECT_EQ(BufferQuota(32 * kMiB, 16384 * kMiB), 160 * kMiB);
  EXPECT_EQ(BufferQuota(96 * kMiB, 256 * kMiB), 72 * kMiB);
  EXPECT_EQ(BufferQuota(480 * kMiB, 1024 * kMiB), 360 * kMiB);
  EXPECT_EQ(BufferQuota(400 * kMiB, 0), 300 * kMiB);
}

TEST(MostStreamsTest, WhatHalfOfTheQuotaHolds) {
  EXPECT_EQ(MostStreams(224 * kMiB, 512 * kMiB), 2688);
  EXPECT_EQ(MostStreams(32 * kMiB, 16384 * kMiB), 2560);
  // Of streams that there is no budget for, none is of use.
  EXPECT_EQ(MostStreams(65536 * kMiB, 262144 * kMiB), 32768);
}

}  // namespace
}  // namespace kvcompress
