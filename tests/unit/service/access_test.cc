// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "access.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kvcompress/error.h"

namespace kvcompress {
namespace {

using Identities = std::vector<std::string>;

AccessRules Rules(const std::vector<std::string>& texts) {
  AccessRules rules;
  for (const std::string& text : texts) EXPECT_TRUE(rules.Add(text).ok());
  return rules;
}

bool May(const AccessRules& rules, Method method, const Identities& caller) {
  return rules.Check(method, caller).ok();
}

TEST(AccessRulesTest, NoRulesLetEverybodyIn) {
  EXPECT_TRUE(AccessRules().empty());
  EXPECT_TRUE(May(AccessRules(), Method::kCompress, {}));
}

TEST(AccessRulesTest, OnlyWhatIsNamedIsAllowed) {
  const AccessRules rules =
      Rules({"Compress+Measure=engine.example", "*=admin.example"});
  EXPECT_TRUE(May(rules, Method::kCompress, {"engine.example"}));
  EXPECT_TRUE(May(rules, Method::kMeasure, {"other", "engine.example"}));
  EXPECT_FALSE(May(rules, Method::kDecompress, {"engine.example"}));
  for (int i = 0; i < kMethodCount; ++i) {
    const auto method = static_cast<Method>(i);
    EXPECT_TRUE(May(rules, method, {"admin.example"}));
    for (const Identities& stranger : {Identities(),
                                       {""},
                                       {"engine.example."},
                                       {"Engine.example"},
                                       {"xengine.example"},
                                       {"engine.exampl"}}) {
      EXPECT_FALSE(May(rules, method, stranger));
    }
  }
}

TEST(AccessRulesTest, AStarStandsForTheRest) {
  const AccessRules rules = Rules({"Compress=spiffe://c/ns/inference/*"});
  EXPECT_TRUE(May(rules, Method::kCompress, {"spiffe://c/ns/inference/sa/a"}));
  EXPECT_FALSE(May(rules, Method::kCompress, {"spiffe://c/ns/inference"}));
  EXPECT_FALSE(May(rules, Method::kCompress, {"spiffe://c/ns/other/sa/a"}));
}

TEST(AccessRulesTest, APrefixMatchedANameThatLeadsOutOfIt) {
  const AccessRules rules = Rules({"Compress=spiffe://c/ns/inference/*"});
  const std::string inside = "spiffe://c/ns/inference/";
  for (const char* rest :
       {"../admin", "a/../../admin", "a/..", "..", "./a", ".", "a/.", "/a",
        "a//b", "%2e%2e/admin", "%2E./admin", "..%2fadmin", "%252e%252e/admin",
        "..\\admin", "?/../admin", "#/../admin"}) {
    EXPECT_FALSE(May(rules, Method::kCompress, {inside + rest})) << rest;
  }
  for (const char* rest : {"", "a", "a/", "a..b", "...", ".a", "sa/a.b-c_d"}) {
    EXPECT_TRUE(May(rules, Method::kCompress, {inside + rest})) << rest;
  }
}

TEST(AccessRulesTest, ANameInFullIsTakenAsItIsWritten) {
  const AccessRules rules = Rules({"Compress=spiffe://c/a/../b"});
  EXPECT_TRUE(May(rules, Method::kCompress, {"spiffe://c/a/../b"}));
  EXPECT_FALSE(May(rules, Method::kCompress, {"spiffe://c/b"}));
}

TEST(AccessRulesTest, APrefixOfHostsIsNoPath) {
  const AccessRules rules = Rules({"Compress=engine-*", "Measure=10.0.*"});
  EXPECT_TRUE(May(rules, Method::kCompress, {"engine-1.example"}));
  EXPECT_TRUE(May(rules, Method::kMeasure, {"10.0.0.7"}));
}

TEST(AccessRulesTest, AStarAloneIsAnybody) {
  const AccessRules rules = Rules({"GetServerInfo=*"});
  EXPECT_TRUE(May(rules, Method::kGetServerInfo, {}));
  EXPECT_FALSE(May(rules, Method::kSelfTest, {"anybody"}));
}

TEST(AccessRulesTest, TheErrorNamesTheMethodAndNobody) {
  const absl::Status status =
      Rules({"Compress=a"}).Check(Method::kDecompress, Identities{"secret"});
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(GetErrorDetail(status)->reason, "METHOD_NOT_ALLOWED");
  EXPECT_EQ(status.message(), "this client may not call Decompress");
}

TEST(AccessRulesTest, RefusesWhatIsNoRule) {
  for (const char* text :
       {"", "Compress", "=a", "Compress=", "compress=a", "Compress+=a",
        "Compress,Measure=a", "Nothing=a", "Compress=a*b", "Compress=**"}) {
    EXPECT_EQ(AccessRules().Add(text).code(),
              absl::StatusCode::kInvalidArgument)
        << text;
  }
}

}  // namespace
}  // namespace kvcompress
