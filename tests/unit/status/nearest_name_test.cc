// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "kvcompress/nearest_name.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace kvcompress {
namespace {

using Names = std::vector<std::string>;

TEST(NearestNameTest, FewestChangesWithinAThird) {
  const Names known = {"listen", "log-level", "log-format"};
  EXPECT_EQ(NearestName("lisen", known), "listen");
  EXPECT_EQ(NearestName("loglevel", known), "log-level");
  EXPECT_EQ(NearestName("log-formats", known), "log-format");
  EXPECT_EQ(NearestName("port", known), "");
  EXPECT_EQ(NearestName("", known), "");
}

TEST(NearestNameTest, NeighboursThatAreExchangedAreOneChange) {
  const Names known = {"auto", "ecsq", "klt"};
  EXPECT_EQ(NearestName("auot", known), "auto");
  EXPECT_EQ(NearestName("ecqs", known), "ecsq");
  EXPECT_EQ(NearestName("ktl", known), "klt");
  EXPECT_EQ(NearestName("uato", known), "auto");
  EXPECT_EQ(NearestName("qsec", known), "");
}

TEST(NearestNameTest, CapitalsAreSmallLetters) {
  EXPECT_EQ(NearestName("INT4", Names{"int8", "int4"}), "int4");
  EXPECT_EQ(NearestName("O", Names{"d", "o"}), "o");
}

TEST(NearestNameTest, LongNamesAreNoMistakes) {
  EXPECT_EQ(NearestName(std::string(1 << 20, 'a'), Names{"auto"}), "");
}

TEST(DidYouMeanTest, TheEndOfAMessage) {
  EXPECT_EQ(DidYouMean("auot", Names{"auto"}), "; did you mean auto?");
  EXPECT_EQ(DidYouMean("int4", Names{"auto"}), "");
}

}  // namespace
}  // namespace kvcompress
