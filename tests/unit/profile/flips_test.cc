// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Every bit of a profile: a flipped one is refused, or makes another profile,
// which artefacts do not take. groups_test.cc flips those of an artefact.

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "kvcompress/decompressor.h"
#include "kvcompress/error.h"
#include "kvcompress/profile.h"
#include "profile/trained.h"

namespace kvcompress {
namespace {

// The bytes of a profile of few components.
std::string SmallProfile() {
  testing::MemoryCache cache(testing::CacheOf(60, 1));
  TrainingCache* const caches[] = {&cache};
  const absl::StatusOr<std::string> bytes =
      TrainProfile({.label = "flips",
                    .layers_per_group = 2,
                    .components = 3,
                    .rope_theta = testing::kProfileTheta},
                   caches);
  EXPECT_TRUE(bytes.ok()) << bytes.status();
  return bytes.value_or("");
}

std::string ArtefactOf(const std::shared_ptr<const Profile>& profile) {
  CompressOptions options;
  options.codec = "klt:high";
  options.profile = profile;
  const auto compressed =
      testing::CompressFile(testing::MakeFile(testing::CacheOf(6, 2)), options);
  EXPECT_TRUE(compressed.ok()) << compressed.status();
  return compressed.ok() ? compressed->artefact : "";
}

absl::Status RestoreWith(const std::shared_ptr<const Profile>& profile,
                         absl::string_view artefact) {
  DecompressOptions options;
  options.profiles = {profile};
  return testing::DecompressFile(artefact, options).status();
}

TEST(Flips, OfAProfileAreRefusedOrMakeAnother) {
  std::string bytes = SmallProfile();
  const auto profile = Profile::Parse(bytes);
  ASSERT_TRUE(profile.ok());
  const std::string artefact = ArtefactOf(*profile);
  ASSERT_TRUE(RestoreWith(*profile, artefact).ok());
  size_t others = 0;
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ 1 << bit % 8);
    const auto flipped = Profile::Parse(bytes);
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ 1 << bit % 8);
    if (!flipped.ok()) continue;
    ++others;
    ASSERT_NE((*flipped)->id().digest, (*profile)->id().digest) << bit;
    const auto detail = GetErrorDetail(RestoreWith(*flipped, artefact));
    ASSERT_TRUE(detail.has_value()) << bit;
    ASSERT_EQ(detail->reason, "PROFILE_MISSING") << bit;
  }
  // Numbers of a matrix may be any.
  EXPECT_GT(others, 0);
  EXPECT_LT(others, 8 * bytes.size());
}

}  // namespace
}  // namespace kvcompress
