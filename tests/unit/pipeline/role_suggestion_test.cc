// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "pipeline/role_suggestion.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace kvcompress {
namespace {

std::string Suggested(const std::vector<absl::string_view>& names) {
  const auto patterns = SuggestRoles(names);
  return patterns ? absl::StrCat(patterns->keys, " ", patterns->values) : "";
}

TEST(SuggestRoles, NamesOnePatternForEach) {
  EXPECT_EQ(Suggested({"a.0.0", "a.0.1", "a.1.0", "a.1.1"}), "*.0 *.1");
  EXPECT_EQ(Suggested({"blk.0.attn_k", "blk.0.attn_v"}), "*_k *_v");
  EXPECT_EQ(Suggested({"k_l0", "v_l0"}), "k_* v_*");
  EXPECT_EQ(Suggested({"0/K.x", "0/V.x", "K.x", "V.x"}), "");
  EXPECT_EQ(Suggested({"layer0/keys", "layer0/values"}), "*key* *value*");
  EXPECT_EQ(Suggested({"h.key.0", "h.value.0"}), "*.key.* *.value.*");
}

TEST(SuggestRoles, NothingWhereAnyNameDoesNotFit) {
  EXPECT_EQ(Suggested({}), "");
  EXPECT_EQ(Suggested({"a", "b"}), "");
  EXPECT_EQ(Suggested({"x_k", "x_v", "x_k", "mask"}), "");
  EXPECT_EQ(Suggested({"x_k", "y_k"}), "");
  EXPECT_EQ(Suggested({"key_values.0", "key_values.1"}), "");
  // Two layers, as likely as keys and values.
  EXPECT_EQ(Suggested({"cache.0", "cache.1"}), "");
}

TEST(SuggestRoles, LooksAtEveryNameOfAPairThatFitsTheFirst) {
  std::vector<std::string> names;
  for (int i = 0; i < 1000; ++i) {
    names.push_back(absl::StrCat("x", i, "_k"));
    names.push_back(absl::StrCat("x", i, "_v"));
  }
  std::vector<absl::string_view> views(names.begin(), names.end());
  EXPECT_EQ(Suggested(views), "*_k *_v");
  names.back() = "x_w";
  views.back() = names.back();
  EXPECT_EQ(Suggested(views), "");
}

}  // namespace
}  // namespace kvcompress
