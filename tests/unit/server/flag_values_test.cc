// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "flag_values.h"

#include <cstdint>

#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace kvcompress {
namespace {

TEST(FlagValuesTest, SizesMayHaveABinaryUnit) {
  constexpr uint64_t kMax = uint64_t{1} << 50;
  uint64_t bytes = 0;
  const auto parse = [&](absl::string_view text) {
    return SetBytes(text, 1, kMax, &bytes);
  };
  ASSERT_TRUE(parse("2GiB").ok());
  EXPECT_EQ(bytes, uint64_t{2} << 30);
  ASSERT_TRUE(parse("2 GiB").ok());
  EXPECT_EQ(bytes, uint64_t{2} << 30);
  ASSERT_TRUE(parse("512MiB").ok());
  EXPECT_EQ(bytes, uint64_t{512} << 20);
  ASSERT_TRUE(parse("16777216").ok());
  EXPECT_EQ(bytes, uint64_t{1} << 24);
  for (const char* text : {"2GB", "2gib", "GiB", "-2GiB", "1.5GiB", "0",
                           "1025TiB", "18014398509481984KiB"}) {
    EXPECT_THAT(parse(text).message(),
                ::testing::HasSubstr("is not a number of bytes"))
        << text;
  }
}

}  // namespace
}  // namespace kvcompress
