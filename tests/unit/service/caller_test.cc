// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "caller.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace kvcompress {
namespace {

constexpr char kParent[] =
    "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

TEST(HostOfPeerTest, LeavesOutThePort) {
  EXPECT_EQ(HostOfPeer("ipv4:10.0.0.1:4711"), "ipv4:10.0.0.1");
  EXPECT_EQ(HostOfPeer("ipv6:%5B::1%5D:4711"), "ipv6:%5B::1%5D");
  EXPECT_EQ(HostOfPeer("unix:"), "unix");
  EXPECT_EQ(HostOfPeer("unix:/run/kv.sock"), "unix");
}

TEST(RequestIdTest, TakesWhatIsSafeInALog) {
  for (const char* good : {"1", "7f3c-A_b.2"}) EXPECT_TRUE(IsRequestId(good));
  EXPECT_TRUE(IsRequestId(std::string(64, 'x')));
  EXPECT_FALSE(IsRequestId(std::string(65, 'x')));
  for (const char* bad : {"", "a b", "a\nb", "a\"", "<b>", "\xc3\xa4", "a=b"}) {
    EXPECT_FALSE(IsRequestId(bad)) << bad;
  }
}

TEST(TraceparentTest, IsWhatW3CSays) {
  EXPECT_TRUE(IsTraceparent(kParent));
  // Versions to come may have more.
  const std::string later = absl::StrReplaceAll(kParent, {{"00-0", "01-0"}});
  EXPECT_TRUE(IsTraceparent(later));
  EXPECT_TRUE(IsTraceparent(later + "-more"));
  EXPECT_FALSE(IsTraceparent(later + "more"));
  EXPECT_FALSE(IsTraceparent(later + "-\n"));
  EXPECT_FALSE(IsTraceparent(later + std::string(300, '-')));
}

TEST(TraceparentTest, AnythingElseIsNone) {
  EXPECT_FALSE(IsTraceparent(""));
  EXPECT_FALSE(IsTraceparent(absl::StrCat(kParent, "-00")));
  EXPECT_FALSE(
      IsTraceparent("00-00000000000000000000000000000000-b7ad6b7169203331-01"));
  EXPECT_FALSE(
      IsTraceparent("00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01"));
  for (const auto& [from, to] : {std::pair{"00-0", "ff-0"},
                                 {"af7", "AF7"},
                                 {"af7", "gf7"},
                                 {"-01", "_01"},
                                 {"-01", "-0x"},
                                 {"c-b", "c b"},
                                 {"00-0", "0-00"}}) {
    EXPECT_FALSE(IsTraceparent(absl::StrReplaceAll(kParent, {{from, to}})))
        << from << " " << to;
  }
}

}  // namespace
}  // namespace kvcompress
