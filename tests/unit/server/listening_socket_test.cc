// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "listening_socket.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/string_view.h"
#include "address.h"

namespace kvcompress {
namespace {

std::string WhyNot(absl::string_view text) {
  ListenAddress address = *ParseListenAddress(text);
  return std::string(ListenOn({.backlog = 1}, &address).status().message());
}

TEST(ListenOnTest, SaysWhatTheSystemSays) {
  EXPECT_EQ(WhyNot("unix:/no/such/dir/sock"), "No such file or directory");
  EXPECT_EQ(WhyNot("203.0.113.1:0"), "Cannot assign requested address");
  EXPECT_NE(WhyNot("no.such.invalid:1"), "");
}

SocketAddress AddressOf(const char* host) {
  return Resolve({.host = host, .port = 1})->front();
}

TEST(HostKeyTest, CountsAnIpv6SubnetAsOneHost) {
  EXPECT_EQ(HostKey(AddressOf("10.0.0.1")), std::string("\x0a\0\0\x01", 4));
  EXPECT_EQ(HostKey(AddressOf("::ffff:10.0.0.1")),
            HostKey(AddressOf("10.0.0.1")));
  EXPECT_EQ(HostKey(AddressOf("2001:db8::1")),
            HostKey(AddressOf("2001:db8::2")));
  EXPECT_NE(HostKey(AddressOf("2001:db8::1")),
            HostKey(AddressOf("2001:db8:0:1::1")));
  // "unix" would be the address 117.110.105.120.
  EXPECT_NE(HostKey(SocketAddress()), HostKey(AddressOf("117.110.105.120")));
}

}  // namespace
}  // namespace kvcompress
