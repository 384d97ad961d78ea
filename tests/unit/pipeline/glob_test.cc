// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "pipeline/glob.h"

#include <fnmatch.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace kvcompress {
namespace {

bool Matches(const std::string& pattern, absl::string_view name) {
  const std::vector<std::string> patterns = {pattern};
  Globs globs(patterns, name.size());
  const bool matches = globs.Match({name})[0];
  EXPECT_EQ(matches, !globs.Unmatched()) << pattern;
  return matches;
}

std::string Repeat(size_t count, const std::string& text) {
  std::string all;
  for (size_t i = 0; i < count; ++i) all += text;
  return all;
}

TEST(Glob, WildcardsStandForBytes) {
  EXPECT_TRUE(Matches("", ""));
  EXPECT_FALSE(Matches("", "a"));
  EXPECT_TRUE(Matches("abc", "abc"));
  EXPECT_FALSE(Matches("abc", "abcd"));
  EXPECT_FALSE(Matches("abcd", "abc"));
  EXPECT_TRUE(Matches("*", ""));
  EXPECT_TRUE(Matches("*", ".a/b"));
  EXPECT_TRUE(Matches("layers.*.k", "layers.12.k"));
  EXPECT_FALSE(Matches("layers.*.k", "layers.12.v"));
  EXPECT_TRUE(Matches("a?c", "a/c"));
  EXPECT_FALSE(Matches("a?c", "ac"));
  EXPECT_TRUE(Matches("*a*b*", "xxaxxbxx"));
  EXPECT_TRUE(Matches("\xff?*", "\xff\x80"));
}

TEST(Glob, Sets) {
  EXPECT_TRUE(Matches("[abc]", "b"));
  EXPECT_FALSE(Matches("[!a-c]", "b"));
  EXPECT_TRUE(Matches("[^a-c]", "d"));
  EXPECT_TRUE(Matches("[]]", "]"));
  EXPECT_TRUE(Matches("[!]]", "a"));
  EXPECT_TRUE(Matches("[a-]", "-"));
  EXPECT_FALSE(Matches("[c-a]", "b"));
  EXPECT_TRUE(Matches("[\\]x]", "]"));
  EXPECT_TRUE(Matches("[[:digit:]k]", "7"));
  EXPECT_TRUE(Matches("[[:digit:]k]", "k"));
  EXPECT_FALSE(Matches("[[:nothing:]]", "n"));
  EXPECT_TRUE(Matches("[[=a=]]", "a"));
  EXPECT_TRUE(Matches("[\x80-\xff]", "\xc3"));
}

TEST(Glob, EscapesAndBracketsWithoutEnd) {
  EXPECT_TRUE(Matches("a\\*", "a*"));
  EXPECT_FALSE(Matches("a\\*", "ab"));
  EXPECT_FALSE(Matches("a\\", "a\\"));
  EXPECT_TRUE(Matches("[ab", "[ab"));
  EXPECT_TRUE(Matches("[", "["));
  EXPECT_TRUE(Matches("*[", "a["));
  EXPECT_FALSE(Matches("[ab", "a"));
}

// With the C library's, on patterns that it has an opinion about: what it makes
// of a bracket without an end depends on the name.
TEST(Glob, AgreesWithTheCLibrary) {
  std::mt19937 random(1);
  const auto pick = [&](absl::string_view letters) {
    return letters[random() % letters.size()];
  };
  const std::vector<std::string> pieces = {"*",
                                           "?",
                                           "a",
                                           "b",
                                           "-",
                                           "]",
                                           "\\*",
                                           "\\a",
                                           "[ab]",
                                           "[!a]",
                                           "[^b]",
                                           "[]]",
                                           "[!]a]",
                                           "[a-c]",
                                           "[b-]",
                                           "[]-b]",
                                           "[c-a]",
                                           "[\\]a]",
                                           "[-a]",
                                           "[a-b-c]",
                                           "[a\\-c]",
                                           "[\\a-\\c]",
                                           "[?*]",
                                           "[[]",
                                           "[[a]",
                                           "[[:x]",
                                           "[![:alpha:]]",
                                           "[[:lower:]-]",
                                           "[[=a=]b]"};
  for (int round = 0; round < 100000; ++round) {
    std::string pattern;
    for (size_t n = random() % 7; n > 0; --n) {
      pattern += pieces[random() % pieces.size()];
    }
    std::string name;
    for (size_t n = random() % 9; n > 0; --n) name += pick("aabbc-]*[:x\\/.");
    ASSERT_EQ(Matches(pattern, name),
              fnmatch(pattern.c_str(), name.c_str(), 0) == 0)
        << pattern << " " << name;
  }
}

// Several together, in words and across their boundaries, as each alone.
TEST(Glob, PatternsDoNotSeeEachOther) {
  std::mt19937 random(2);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::string> patterns;
    for (size_t n = 1 + random() % 60; n > 0; --n) {
      std::string pattern;
      for (size_t i = random() % (round % 4 == 0 ? 300 : 12); i > 0; --i) {
        pattern += "aabb??*"[random() % 7];
      }
      patterns.push_back(pattern);
    }
    std::vector<std::string> texts;
    for (int n = 0; n < 20; ++n) {
      std::string name;
      for (size_t i = random() % (round % 4 == 0 ? 400 : 14); i > 0; --i) {
        name += "ab"[random() % 2];
      }
      texts.push_back(name);
    }
    const std::vector<absl::string_view> names(texts.begin(), texts.end());
    Globs globs(patterns, 400);
    const std::vector<bool> got = globs.Match(names);
    std::vector<bool> want(names.size());
    std::optional<size_t> unmatched;
    for (size_t p = patterns.size(); p-- > 0;) {
      bool any = false;
      for (size_t i = 0; i < names.size(); ++i) {
        if (fnmatch(patterns[p].c_str(), texts[i].c_str(), 0) != 0) continue;
        any = want[i] = true;
      }
      if (!any) unmatched = p;
    }
    EXPECT_EQ(got, want);
    EXPECT_EQ(globs.Unmatched(), unmatched);
  }
}

TEST(Glob, CountsItsWork) {
  const std::vector<std::string> exact = {"abc", "d\\*"};
  EXPECT_EQ(Globs(exact, 100).words(), 0);
  const std::vector<std::string> some = {"abc*", "?", "x[ab]"};
  EXPECT_EQ(Globs(some, 100).words(), 1);
  const std::vector<std::string> longer = {
      absl::StrCat("*", std::string(64, 'a'))};
  EXPECT_EQ(Globs(longer, 100).words(), 2);
  // What is longer than every name takes nothing.
  EXPECT_EQ(Globs(longer, 63).words(), 0);
  EXPECT_EQ(Globs(longer, 63).Unmatched(), 0);
}

// Brackets that look for their ends, each from its own beginning: in square
// time this takes hours.
TEST(Glob, ReadsBracketsWithoutEndInTheirTime) {
  const std::vector<std::string> patterns = {
      Repeat(200000, "["), absl::StrCat("[", Repeat(100000, "[[:alpha:]")),
      Repeat(200000, "[a\\]")};
  Globs globs(patterns, 1 << 20);
  EXPECT_TRUE(globs.Match({patterns[0]})[0]);
}

}  // namespace
}  // namespace kvcompress
