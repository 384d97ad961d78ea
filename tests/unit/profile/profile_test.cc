// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "kvcompress/profile.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "kvcompress/error.h"
#include "profile/sha256.h"
#include "profile/trained.h"

namespace kvcompress {
namespace {

using testing::TrainedProfile;

TEST(Sha256, OfTheStandardsExample) {
  EXPECT_EQ(Sha256Hex("abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Profile, TrainingTwiceGivesTheSameBytes) {
  const std::string bytes = TrainedProfile();
  EXPECT_EQ(TrainedProfile(), bytes);
  const auto profile = Profile::Parse(bytes);
  ASSERT_TRUE(profile.ok()) << profile.status();
  const ProfileContent& content = (*profile)->content();
  EXPECT_EQ((*profile)->id().label, "test model");
  EXPECT_EQ((*profile)->id().digest, "sha256:" + Sha256Hex(bytes));
  ASSERT_EQ(content.groups.size(), 2);
  EXPECT_EQ(content.rotations.size(), 1);
  EXPECT_EQ(content.groups[0].channels(), 2 * 2 * 2 * 16);
  EXPECT_EQ(content.groups[0].tensors[0].rotation, 0);
  EXPECT_FALSE(content.groups[0].tensors[1].rotation.has_value());
  EXPECT_EQ((*profile)->Find(TensorRole::kValue, 3)->tensor, 3);
  EXPECT_FALSE((*profile)->Find(TensorRole::kKey, 4).has_value());
  EXPECT_TRUE((*profile)->FindPreset("ultra").has_value());
}

TEST(Profile, LayersPerGroupZeroIsAllOfThem) {
  const auto profile = Profile::Parse(TrainedProfile(0));
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_EQ((*profile)->content().groups.size(), 1);
}

TEST(Profile, ThatEndsEarlyOrLateIsRefused) {
  const std::string bytes = TrainedProfile();
  for (const size_t size : {size_t{0}, size_t{7}, size_t{100}, bytes.size() / 2,
                            bytes.size() - 1}) {
    const auto profile = Profile::Parse(bytes.substr(0, size));
    EXPECT_EQ(profile.status().code(), absl::StatusCode::kDataLoss) << size;
  }
  EXPECT_FALSE(Profile::Parse(bytes + '\0').ok());
}

TEST(Profile, OtherSafetensorsFilesAreNone) {
  const auto profile = Profile::Parse(testing::RawFile("{}"));
  EXPECT_EQ(profile.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(GetErrorDetail(profile.status())->reason, "NOT_A_PROFILE");
}

TEST(Profile, OfALaterVersionIsUnimplemented) {
  std::string bytes = TrainedProfile();
  const std::string version = R"("kvcompress.profile":"3")";
  const size_t at = bytes.find(version);
  ASSERT_NE(at, std::string::npos);
  bytes[at + version.size() - 2] = '4';
  EXPECT_EQ(Profile::Parse(bytes).status().code(),
            absl::StatusCode::kUnimplemented);
  // Earlier versions have no caches.
  for (const char earlier : {'1', '2'}) {
    bytes[at + version.size() - 2] = earlier;
    EXPECT_EQ(Profile::Parse(bytes).status().code(),
              absl::StatusCode::kDataLoss);
  }
}

// A profile without caches is of version 1, or of version 2 with shares.
TEST(Profile, HasTheLeastVersionThatSuffices) {
  const auto profile = Profile::Parse(TrainedProfile());
  ASSERT_TRUE(profile.ok());
  const std::string mark = MarkOfCache("a tensor");
  for (const bool expects : {false, true}) {
    for (const bool shares : {false, true}) {
      for (const size_t caches : {size_t{0}, size_t{1}, kMaxProfileCaches}) {
        if (shares && !expects) continue;
        ProfileContent content = (*profile)->content();
        content.caches.assign(caches, mark);
        for (ProfilePreset& preset : content.presets) {
          if (!expects) continue;
          preset.expected = {.ratio = 8, .divergence = 1, .int4_divergence = 2};
          if (shares) preset.expected->least_share = 0.25f;
          if (shares) preset.expected->most_share = 0.75f;
        }
        const auto bytes = SerializeProfile(content);
        ASSERT_TRUE(bytes.ok()) << bytes.status();
        const auto read = Profile::Parse(*bytes);
        ASSERT_TRUE(read.ok()) << read.status();
        const int version = caches > 0 ? 3 : shares ? 2 : 1;
        EXPECT_NE(bytes->find(
                      absl::StrCat("\"kvcompress.profile\":\"", version, "\"")),
                  std::string::npos);
        EXPECT_EQ((*read)->content().caches, content.caches);
        EXPECT_EQ((*read)->content().presets[0].expected.has_value(), expects);
      }
    }
  }
}

TEST(Profile, ContentThatBreaksARuleIsNotWritten) {
  const auto profile = Profile::Parse(TrainedProfile());
  ASSERT_TRUE(profile.ok());
  const std::function<void(ProfileContent*)> changes[] = {
      [](ProfileContent* c) { c->label.clear(); },
      [](ProfileContent* c) { c->label.assign(257, 'x'); },
      [](ProfileContent* c) { c->presets.clear(); },
      [](ProfileContent* c) { c->presets[0].step = 0.3f; },
      [](ProfileContent* c) { c->presets[1].name = c->presets[0].name; },
      [](ProfileContent* c) { c->presets[0].name = "High"; },
      [](ProfileContent* c) { c->groups.clear(); },
      [](ProfileContent* c) { c->groups[1] = c->groups[0]; },
      [](ProfileContent* c) { c->groups[0].tensors[0].rotation = 1; },
      [](ProfileContent* c) { c->groups[0].tensors[0].heads = 3; },
      [](ProfileContent* c) { c->groups[0].components += 1; },
      [](ProfileContent* c) { c->groups[0].decode[5] = -32768; },
      [](ProfileContent* c) { c->groups[0].classes[5] = 72; },
      [](ProfileContent* c) { c->groups[0].scales[5] = 0; },
      [](ProfileContent* c) { c->groups[0].means[5] = 0x1p41f; },
      [](ProfileContent* c) {
        c->groups[0].means[5] = std::numeric_limits<float>::quiet_NaN();
      },
      [](ProfileContent* c) { c->groups[0].encode = c->groups[0].decode; },
      [](ProfileContent* c) { c->rotations[0].increments.resize(9); },
      [](ProfileContent* c) { c->caches = {"ABCDEF0123456789"}; },
      [](ProfileContent* c) { c->caches[0][0] = 'A'; },
      [](ProfileContent* c) {
        c->caches.assign(kMaxProfileCaches + 1, c->caches[0]);
      },
      [](ProfileContent* c) {
        c->presets[0].expected = {1.0f, 1.0f, 1.0f};
      },
      [](ProfileContent* c) {
        for (ProfilePreset& preset : c->presets) {
          preset.expected = {1.0f, 0.0f, 1.0f};
        }
      },
  };
  for (const auto& change : changes) {
    ProfileContent content = (*profile)->content();
    ASSERT_TRUE(SerializeProfile(content).ok());
    change(&content);
    EXPECT_EQ(SerializeProfile(content).status().code(),
              absl::StatusCode::kInvalidArgument)
        << &change - changes;
  }
}

}  // namespace
}  // namespace kvcompress
