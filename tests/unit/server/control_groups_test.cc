// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "control_groups.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "support/fake_root.h"

namespace kvcompress {
namespace {

class ControlGroupsTest : public testing::FakeRootTest {
 protected:
  // The groups of a controller, from their own outwards.
  std::vector<std::string> Visited(absl::string_view controller) {
    std::vector<std::string> visited;
    ForEachControlGroup(
        root_, controller, [&](const std::string& directory, int version) {
          visited.push_back(
              absl::StrCat(version, directory.substr(root_.size())));
        });
    return visited;
  }
};

TEST_F(ControlGroupsTest, OfBothVersions) {
  EXPECT_TRUE(Visited("cpu").empty());
  Write("/proc/self/cgroup",
        "4:memory:/m\n2:cpu,cpuacct:/c/d\nnonsense\n3:cpu:relative\n"
        "0::/a/b\n");
  EXPECT_EQ(Visited("cpu"),
            (std::vector<std::string>{
                "1/sys/fs/cgroup/cpu/c/d", "1/sys/fs/cgroup/cpu/c",
                "1/sys/fs/cgroup/cpu", "2/sys/fs/cgroup/a/b",
                "2/sys/fs/cgroup/a", "2/sys/fs/cgroup"}));
}

TEST_F(ControlGroupsTest, NoQuota) {
  EXPECT_FALSE(ProcessorQuota(root_));
  Write("/proc/self/cgroup", "2:cpu:/\n0::/\n");
  EXPECT_FALSE(ProcessorQuota(root_));
  Write("/sys/fs/cgroup/cpu.max", "max 100000\n");
  Write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  Write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_FALSE(ProcessorQuota(root_));
  for (const char* text : {"", "many", "1", "0 0", "100000 0", "-5 100000"}) {
    Write("/sys/fs/cgroup/cpu.max", text);
    EXPECT_FALSE(ProcessorQuota(root_)) << text;
  }
}

TEST_F(ControlGroupsTest, TheLeastQuotaOfTheGroupsAround) {
  Write("/proc/self/cgroup", "0::/pod/container\n");
  Write("/sys/fs/cgroup/pod/cpu.max", "150000 100000\n");
  EXPECT_EQ(ProcessorQuota(root_), 1.5);
  Write("/sys/fs/cgroup/pod/container/cpu.max", "20000 10000\n");
  EXPECT_EQ(ProcessorQuota(root_), 1.5);
  Write("/sys/fs/cgroup/cpu.max", "50000 100000\n");
  EXPECT_EQ(ProcessorQuota(root_), 0.5);
}

TEST_F(ControlGroupsTest, QuotaOfTheFirstVersion) {
  Write("/proc/self/cgroup", "3:cpuset:/x\n2:cpu,cpuacct:/docker/y\n");
  Write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "400000\n");
  Write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(ProcessorQuota(root_), 4);
}

}  // namespace
}  // namespace kvcompress
