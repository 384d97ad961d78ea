// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "profile_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "kvcompress/error.h"
#include "kvcompress/profile.h"

namespace kvcompress {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

// Of one tensor; `training` distinguishes it from others of the label.
std::shared_ptr<const Profile> SmallProfile(std::string label,
                                            std::string training = "") {
  ProfileContent content;
  content.label = std::move(label);
  content.training = std::move(training);
  content.presets = {{"high", 0.5f}};
  ProfileGroup group;
  group.tensors = {{.role = TensorRole::kValue, .heads = 1, .channels = 2}};
  group.components = 1;
  group.means = {0, 0};
  group.scales = {1, 1};
  group.decode = {1, 1};
  group.classes = {0};
  content.groups = {group};
  const absl::StatusOr<std::string> bytes = SerializeProfile(content);
  EXPECT_TRUE(bytes.ok()) << bytes.status();
  return *Profile::Parse(*bytes);
}

ProfileSet Profiles() {
  return ProfileSet({{"b", SmallProfile("model")},
                     {"a", SmallProfile("other")},
                     {"a2", SmallProfile("other")},
                     {"c", SmallProfile("twice", "1")},
                     {"d", SmallProfile("twice", "2")}},
                    {{"sha256-" + std::string(64, '0'),
                      MakeError(absl::StatusCode::kDataLoss, "damaged",
                                {.reason = "PROFILE_DAMAGED"})}});
}

std::string ReasonOf(const absl::Status& status) {
  const auto detail = GetErrorDetail(status);
  return detail ? detail->reason : "";
}

TEST(ProfileSetTest, FindsByNameDigestAndLabel) {
  const ProfileSet set = Profiles();
  EXPECT_EQ(set.loaded()[0].name, "a");
  for (const std::string& text : {std::string("b"), std::string("model"),
                                  SmallProfile("model")->id().digest}) {
    const auto found = set.Find(text, "klt:high");
    ASSERT_TRUE(found.ok()) << text << found.status();
    EXPECT_EQ((*found)->id().label, "model");
  }
  // The same profile under two names is one.
  EXPECT_TRUE(set.Find("other", "klt:high").ok());
  EXPECT_THAT(set.WithLabel("other"), SizeIs(1));
  EXPECT_THAT(set.All(), SizeIs(4));
  EXPECT_THAT(set.WithLabel("b"), SizeIs(0));
}

TEST(ProfileSetTest, SaysWhyThereIsNone) {
  const ProfileSet set = Profiles();
  EXPECT_EQ(ReasonOf(set.Find("e", "klt:high").status()), "PROFILE_UNKNOWN");
  EXPECT_THAT(std::string(set.Find("e", "klt:high").status().message()),
              HasSubstr("it has: a, a2, b, c, d"));
  EXPECT_EQ(ReasonOf(set.Find("twice", "klt:high").status()),
            "PROFILE_AMBIGUOUS");
  EXPECT_THAT(
      std::string(ProfileSet().Find("e", "klt:high").status().message()),
      HasSubstr("it has none"));
  const std::string digest = "sha256:" + std::string(64, '0');
  EXPECT_EQ(set.Find(digest, "klt:high").status().code(),
            absl::StatusCode::kDataLoss);
}

TEST(ProfileSetTest, TellsDamageFromAbsence) {
  const ProfileSet set = Profiles();
  for (const char digit : {'0', '1'}) {
    const absl::Status missing =
        MakeError(absl::StatusCode::kFailedPrecondition, "missing",
                  {.reason = "PROFILE_MISSING",
                   .profile = "sha256:" + std::string(64, digit)});
    EXPECT_EQ(ReasonOf(set.Explain(missing)),
              digit == '0' ? "PROFILE_DAMAGED" : "PROFILE_MISSING");
  }
  EXPECT_TRUE(set.Explain(absl::OkStatus()).ok());
  EXPECT_EQ(set.Explain(absl::InternalError("x")).message(), "x");
}

}  // namespace
}  // namespace kvcompress
