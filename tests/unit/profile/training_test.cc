// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kvcompress/compressor.h"
#include "kvcompress/decompressor.h"
#include "kvcompress/error.h"
#include "kvcompress/profile_training.h"
#include "profile/trained.h"

namespace kvcompress {
namespace {

using testing::CacheOf;
using testing::MemoryCache;
using testing::NamedTensor;

constexpr size_t kWidth = testing::kProfileHeads * testing::kProfileChannels;

// Matrices that tell errors of every tensor to matter as they are, but those of
// the first layer's values `weight` times as much. Neighbours are mixed.
std::vector<NamedTensor> MetricOf(float weight, float mixed = 0.25f) {
  std::vector<NamedTensor> tensors;
  for (size_t layer = 0; layer < testing::kProfileLayers; ++layer) {
    for (const bool key : {true, false}) {
      NamedTensor tensor;
      tensor.spec.name = absl::StrCat("layer_", layer, key ? "_key" : "_value");
      tensor.spec.dtype = DType::kF32;
      tensor.spec.shape = {kWidth, kWidth};
      const float factor = layer == 0 && !key ? weight : 1;
      for (size_t i = 0; i < kWidth; ++i) {
        for (size_t j = 0; j < kWidth; ++j) {
          const bool pair = i != j && i / 2 == j / 2;
          const float value = i == j ? factor : (pair ? mixed * factor : 0);
          AppendElement(DType::kF32, value, &tensor.bytes);
        }
      }
      tensors.push_back(std::move(tensor));
    }
  }
  return tensors;
}

TrainingOptions Options() {
  return {.label = "test model",
          .layers_per_group = 2,
          .components = 64,
          .rope_theta = testing::kProfileTheta,
          .presets = {{"max", 1.0f, {}}, {"high", 0.25f, {}}}};
}

absl::StatusOr<std::shared_ptr<const Profile>> Trained(
    const TrainingOptions& options) {
  MemoryCache cache(CacheOf(300, 1));
  TrainingCache* const caches[] = {&cache};
  absl::StatusOr<std::string> bytes = TrainProfile(options, caches);
  if (!bytes.ok()) return bytes.status();
  return Profile::Parse(*bytes);
}

// Squared errors of the first layer's values and of the second's.
std::vector<double> ErrorsWith(std::shared_ptr<const Profile> profile) {
  CompressOptions options;
  options.codec = "klt:max";
  options.profile = profile;
  const auto compressed =
      testing::CompressFile(testing::MakeFile(CacheOf(90, 5)), options);
  EXPECT_TRUE(compressed.ok()) << compressed.status();
  const std::vector<TensorReport>& tensors = compressed->report.tensors;
  return {tensors[1].metrics.mse, tensors[3].metrics.mse};
}

TEST(Training, ErrorsFollowTheMetric) {
  for (const float weight : {1.0f, 8.0f}) {
    MemoryCache metric(MetricOf(weight));
    TrainingOptions options = Options();
    options.metric = &metric;
    const auto profile = Trained(options);
    ASSERT_TRUE(profile.ok()) << profile.status();
    EXPECT_FALSE((*profile)->content().groups[0].encode.empty());
    EXPECT_TRUE(absl::StrContains((*profile)->content().training, "given"));
    const std::vector<double> errors = ErrorsWith(*profile);
    if (weight == 1) {
      EXPECT_LT(errors[0], 3 * errors[1]);
      EXPECT_LT(errors[1], 3 * errors[0]);
    } else {
      EXPECT_LT(16 * errors[0], errors[1]);
    }
  }
}

TEST(Training, GroupsAreOfEqualSize) {
  // How many layers a group is asked to have, and how many of the four it has.
  const std::vector<std::pair<size_t, std::vector<size_t>>> cases = {
      {0, {4}}, {1, {1, 1, 1, 1}}, {2, {2, 2}}, {3, {4}}, {4, {4}}, {512, {4}}};
  for (const auto& [wanted, layers] : cases) {
    TrainingOptions options = Options();
    options.layers_per_group = wanted;
    const auto profile = Trained(options);
    ASSERT_TRUE(profile.ok()) << profile.status();
    std::vector<size_t> found;
    for (const ProfileGroup& group : (*profile)->content().groups) {
      found.push_back(group.tensors.size() / 2);
    }
    EXPECT_EQ(found, layers) << wanted;
  }
}

TEST(Training, AGroupHasALayerMoreWhereTheyCannotBeEqual) {
  std::vector<NamedTensor> tensors = CacheOf(300, 1);
  tensors.resize(2 * (testing::kProfileLayers - 1));
  MemoryCache cache(tensors);
  TrainingCache* const caches[] = {&cache};
  TrainingOptions options = Options();  // groups of about two layers
  const absl::StatusOr<std::string> bytes = TrainProfile(options, caches);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  const auto profile = Profile::Parse(*bytes);
  ASSERT_TRUE(profile.ok()) << profile.status();
  const auto& groups = (*profile)->content().groups;
  ASSERT_EQ(groups.size(), 2);
  EXPECT_EQ(groups[0].tensors.size(), 4);
  EXPECT_EQ(groups[1].tensors.size(), 2);
}

TEST(Training, RefusesABadMetric) {
  std::vector<NamedTensor> fewer = MetricOf(1);
  fewer.erase(fewer.begin() + 3);
  std::vector<NamedTensor> flat = MetricOf(1);
  flat[0].spec.shape = {kWidth / 2, 2 * kWidth};
  std::vector<NamedTensor> skew = MetricOf(1);
  skew[2].bytes.replace(4, 4, std::string("\x00\x00\x00\x40", 4));
  std::vector<NamedTensor> infinite = MetricOf(1);
  infinite[2].bytes.replace(0, 4, std::string("\x00\x00\x80\x7f", 4));
  for (const std::vector<NamedTensor>& bad :
       {fewer, flat, skew, infinite, MetricOf(-1), MetricOf(1, 1.5f)}) {
    MemoryCache metric(bad);
    TrainingOptions options = Options();
    options.metric = &metric;
    const auto profile = Trained(options);
    EXPECT_EQ(profile.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(GetErrorDetail(profile.status())->reason,
              "INVALID_TRAINING_METRIC");
  }
}

TEST(Training, ABasisGetsOtherPresets) {
  const auto basis = Trained(Options());
  ASSERT_TRUE(basis.ok()) << basis.status();
  TrainingOptions options = Options();
  options.basis = &(*basis)->content();
  options.presets = {{"only", 0.5f, {}}};
  const auto other = Trained(options);
  ASSERT_TRUE(other.ok()) << other.status();
  const ProfileGroup& before = (*basis)->content().groups[1];
  const ProfileGroup& after = (*other)->content().groups[1];
  EXPECT_EQ(after.decode, before.decode);
  ASSERT_EQ(after.classes.size(), after.components);
  // A step between two has classes between theirs.
  for (size_t j = 0; j < after.components; ++j) {
    EXPECT_GE(after.classes[j] + 1, before.classes[j]);
    EXPECT_LE(after.classes[j], before.classes[after.components + j] + 1);
  }
}

TEST(Training, KnownStepsKeepTheirClasses) {
  const auto basis = Trained(Options());
  ASSERT_TRUE(basis.ok()) << basis.status();
  TrainingOptions options = Options();
  options.basis = &(*basis)->content();
  const ProfileExpectation expected = {.ratio = 17.5f,
                                       .divergence = 0.0061f,
                                       .int4_divergence = 0.0242f,
                                       .least_share = 0.125f,
                                       .most_share = 0.75f};
  options.presets = {{"high", 0.25f, expected}};
  const auto named = Trained(options);
  ASSERT_TRUE(named.ok()) << named.status();
  const ProfileContent& content = (*named)->content();
  EXPECT_EQ(content.training, (*basis)->content().training);
  ASSERT_EQ(content.presets.size(), 1);
  EXPECT_EQ(content.presets[0].expected->ratio, expected.ratio);
  EXPECT_EQ(content.presets[0].expected->divergence, expected.divergence);
  EXPECT_EQ(content.presets[0].expected->int4_divergence,
            expected.int4_divergence);
  EXPECT_EQ(content.presets[0].expected->least_share, expected.least_share);
  EXPECT_EQ(content.presets[0].expected->most_share, expected.most_share);
  const std::vector<uint8_t>& all = (*basis)->content().groups[0].classes;
  EXPECT_EQ(
      content.groups[0].classes,
      std::vector<uint8_t>(all.begin() + static_cast<ptrdiff_t>(all.size() / 2),
                           all.end()));
}

}  // namespace
}  // namespace kvcompress
