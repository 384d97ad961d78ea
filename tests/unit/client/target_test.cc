// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "client/cpp/target.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kvcompress/error.h"

namespace kvcompress {
namespace {

std::string NameOf(const std::string& text) {
  const absl::StatusOr<Target> target = ParseTarget(text);
  return target.ok() ? target->name : target.status().ToString();
}

std::string HostOf(const std::string& text) {
  const absl::StatusOr<Target> target = ParseTarget(text);
  return target.ok() ? absl::StrJoin(target->hosts, "|")
                     : target.status().ToString();
}

TEST(TargetTest, PathsOfSocketsAreEncodedForGrpc) {
  EXPECT_EQ(NameOf("unix:/run/kv.sock"), "unix:/run/kv.sock");
  EXPECT_EQ(NameOf("unix:///run/kv.sock"), "unix:/run/kv.sock");
  EXPECT_EQ(NameOf("unix:rel.sock"), "unix:rel.sock");
  EXPECT_EQ(NameOf("unix:/a%20b/h#h/q?q/a b:c"),
            "unix:/a%2520b/h%23h/q%3Fq/a%20b%3Ac");
  EXPECT_EQ(NameOf("unix:/\xc3\xbc"), "unix:/%C3%BC");
}

TEST(TargetTest, SocketsThatGrpcCannotReachAreRefused) {
  const std::string longest(106, 'a');
  EXPECT_TRUE(ParseTarget(absl::StrCat("unix:/", longest)).ok());
  const absl::Status longer =
      ParseTarget(absl::StrCat("unix:/a", longest)).status();
  EXPECT_EQ(GetErrorDetail(longer)->reason, "INVALID_ADDRESS");
  EXPECT_EQ(GetErrorDetail(longer)->limit, 107);
  for (const char* const text : {"unix:", "unix://rel.sock", "unix:/a,b"}) {
    const absl::Status refusal = ParseTarget(text).status();
    EXPECT_EQ(refusal.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_EQ(GetErrorDetail(refusal)->reason, "INVALID_ADDRESS");
  }
}

TEST(TargetTest, HostsOfAllNotations) {
  EXPECT_EQ(HostOf("Example.com:50051"), "example.com");
  EXPECT_EQ(HostOf("example.com"), "example.com");
  EXPECT_EQ(HostOf("127.0.0.1:1"), "127.0.0.1");
  EXPECT_EQ(HostOf("[::1]:65535"), "::1");
  EXPECT_EQ(HostOf("[::1]"), "::1");
  EXPECT_EQ(HostOf("::1"), "::1");
  EXPECT_EQ(HostOf("dns:host:1"), "host");
  EXPECT_EQ(HostOf("dns:///host:1"), "host");
  EXPECT_EQ(HostOf("dns://1.1.1.1/host:https"), "host");
  EXPECT_EQ(HostOf("ipv4:10.0.0.1:1"), "10.0.0.1");
  EXPECT_EQ(HostOf("ipv4:10.0.0.1:1,10.0.0.2:2"), "10.0.0.1|10.0.0.2");
  EXPECT_EQ(HostOf("ipv6:%5Bfd00::1%5D:1"), "fd00::1");
  EXPECT_EQ(HostOf("passthrough:///host:1"), "host");
  EXPECT_EQ(HostOf("host.:1"), "host");
  EXPECT_EQ(HostOf("unix-abstract:name"), "");
}

TEST(TargetTest, PortsThatWouldBecomeOthersAreRefused) {
  for (const char* const text :
       {"[::1]:99999", "127.0.0.1:65536", "host:0", "host:", "host:x",
        "host:-1", "host:1x", "dns:///host:99999999999999999999",
        "ipv4:10.0.0.1:1,10.0.0.2:99999", "ipv6:%5B::1%5D:99999"}) {
    const absl::Status refusal = ParseTarget(text).status();
    EXPECT_EQ(refusal.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_EQ(GetErrorDetail(refusal)->limit, 65535) << text;
  }
}

bool Direct(const std::string& text, const std::string& no_proxy) {
  return IsDirect(*ParseTarget(text), no_proxy);
}

TEST(TargetTest, LoopbackAndSocketsNeverGoThroughAProxy) {
  for (const char* const text :
       {"127.0.0.1:1", "127.8.9.10:1", "[::1]:1", "localhost:1", "LOCALHOST:1",
        "dns:///localhost:1", "localhost.:1", "[::ffff:127.0.0.1]:1",
        "ipv4:127.0.0.1:1,127.0.0.2:1", "unix:/run/kv.sock",
        "unix-abstract:name"}) {
    EXPECT_TRUE(Direct(text, "")) << text;
  }
  for (const char* const text :
       {"128.0.0.1:1", "[::2]:1", "localhost.example.com:1", "example.com:1",
        "ipv4:127.0.0.1:1,10.0.0.1:1", "xds:///localhost"}) {
    EXPECT_FALSE(Direct(text, "")) << text;
  }
}

struct NoProxyCase {
  const char* target;
  const char* no_proxy;
  bool direct;
};

TEST(TargetTest, NoProxyNamesHostsDomainsAddressesAndBlocks) {
  constexpr NoProxyCase kCases[] = {
      {"example.com:1", "example.com", true},
      {"example.com:1", "other, Example.COM ,", true},
      {"a.example.com:1", "example.com", true},
      {"a.example.com:1", ".example.com", true},
      {"example.com:1", ".example.com", true},
      {"badexample.com:1", "example.com", false},
      {"example.com:1", "a.example.com", false},
      {"example.com:1", "", false},
      {"example.com:1", ",.,", false},
      {"example.com:1", "*", true},
      {"10.1.2.3:1", "*", true},
      {"10.1.2.3:1", "10.1.2.3", true},
      {"10.1.2.3:1", "10.1.2.4", false},
      {"10.1.2.3:1", "10.0.0.0/8", true},
      {"11.1.2.3:1", "10.0.0.0/8", false},
      {"10.1.2.3:1", "10.1.2.0/30", true},
      {"10.1.2.4:1", "10.1.2.0/30", false},
      {"10.1.2.3:1", "0.0.0.0/0", true},
      {"10.1.2.3:1", "10.1.2.3/33", false},
      {"10.1.2.3:1", "10.0.0.0/x", false},
      {"10.1.2.3:1", "2.3", false},
      {"[fd00::1]:1", "fd00::/8", true},
      {"[fe00::1]:1", "fd00::/8", false},
      {"[fd00:0::1]:1", "fd00::1", true},
      {"[fd00::1]:1", "[fd00::1]", true},
      {"[::ffff:10.1.2.3]:1", "10.0.0.0/8", true},
      {"[fd00::1]:1", "10.0.0.0/8", false},
      {"ten.com:1", "10.0.0.0/8", false},
  };
  for (const NoProxyCase& each : kCases) {
    EXPECT_EQ(Direct(each.target, each.no_proxy), each.direct)
        << each.target << " with " << each.no_proxy;
  }
}

}  // namespace
}  // namespace kvcompress
