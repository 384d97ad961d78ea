// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "profile/group_sinks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "kvcompress/compressor.h"
#include "kvcompress/decompressor.h"
#include "profile/trained.h"
#include "support/safetensors_file.h"

namespace kvcompress {
namespace {

using testing::CacheOf;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::NamedTensor;

// Makes values of tokens short in so many layers, and their keys alike.
void MakeSinks(const std::vector<size_t>& sinks, size_t layers,
               std::vector<NamedTensor>* cache) {
  for (size_t i = 0; i < 2 * layers; ++i) {
    NamedTensor& tensor = (*cache)[i];
    const size_t tokens = tensor.spec.shape[2];
    const size_t channels = tensor.spec.shape[3];
    std::string from_element;
    AppendElement(tensor.spec.dtype, i % 2 == 0 ? 24.0f : 0.125f,
                  &from_element);
    for (size_t head = 0; head < tensor.spec.shape[1]; ++head) {
      for (const size_t sink : sinks) {
        const size_t first = (head * tokens + sink) * channels;
        for (size_t c = 0; c < channels; ++c) {
          tensor.bytes.replace((first + c) * from_element.size(),
                               from_element.size(), from_element);
        }
      }
    }
  }
}

class Sinks : public ::testing::Test {
 protected:
  Sinks() : profile_(*Profile::Parse(testing::TrainedProfile(0))) {}

  std::vector<uint64_t> Find(const std::vector<NamedTensor>& cache) const {
    const ProfileGroup& group = profile_->content().groups[0];
    profile::GroupShape shape;
    shape.batches = 1;
    shape.tokens = cache[0].spec.shape[2];
    std::vector<absl::string_view> sources;
    for (const NamedTensor& tensor : cache) {
      shape.dtypes.push_back(tensor.spec.dtype);
      sources.push_back(tensor.bytes);
    }
    return profile::FindSinks(group, shape, sources, /*workers=*/nullptr,
                              /*checkpoint=*/nullptr);
  }

  const std::shared_ptr<const Profile> profile_;
};

TEST_F(Sinks, AreTokensWithShortValuesInMostLayers) {
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    std::vector<NamedTensor> cache = CacheOf(100, 3, dtype);
    EXPECT_THAT(Find(cache), IsEmpty());
    MakeSinks({0, 2, 61}, 3, &cache);
    EXPECT_THAT(Find(cache), ElementsAre(0, 2, 61));
    cache = CacheOf(100, 3, dtype);
    MakeSinks({0, 2, 61}, 2, &cache);  // of four
    EXPECT_THAT(Find(cache), IsEmpty());
  }
}

TEST_F(Sinks, AreNotLookedForInShortCaches) {
  std::vector<NamedTensor> cache = CacheOf(39, 3);
  MakeSinks({2}, 4, &cache);
  EXPECT_THAT(Find(cache), IsEmpty());
}

TEST_F(Sinks, NoTokenIsShortWhereMostValuesAreZeros) {
  std::vector<NamedTensor> cache = CacheOf(100, 3);
  for (NamedTensor& tensor : cache) {
    tensor.bytes.assign(tensor.bytes.size(), '\0');
  }
  EXPECT_THAT(Find(cache), IsEmpty());
}

TEST_F(Sinks, HaveFinerStepsUpToTheLimit) {
  std::vector<int8_t> offsets;
  profile::RefineSinks({}, 4, &offsets);
  EXPECT_THAT(offsets, IsEmpty());
  profile::RefineSinks({1, 3}, 4, &offsets);
  EXPECT_THAT(offsets, ElementsAre(0, 12, 0, 12));
  offsets = {-3, 40, 5, -16};
  profile::RefineSinks({1, 3}, 4, &offsets);
  EXPECT_THAT(offsets, ElementsAre(-3, 48, 5, -4));
}

// Those near the first token are integers, as that is.
TEST_F(Sinks, NearTheFirstTokenComeBackWell) {
  std::vector<NamedTensor> cache = CacheOf(300, 5);
  MakeSinks({0, 2, 261}, 3, &cache);
  CompressOptions options;
  options.codec = "klt:ultra";
  options.profile = profile_;
  options.reconstruct = true;
  const std::string file = testing::MakeFile(cache);
  const auto done = testing::CompressFile(file, options);
  ASSERT_TRUE(done.ok()) << done.status();
  DecompressOptions with;
  with.profiles = {profile_};
  const auto restored = testing::DecompressFile(done->artefact, with);
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_EQ(*restored, done->reconstructed);
  // Keys of the first layer's first head, which begin the file's data.
  const size_t begin = file.size() - cache.size() * cache[0].bytes.size();
  const auto error = [&](size_t token) {
    double sum = 0;
    for (size_t c = 0; c < testing::kProfileChannels; ++c) {
      float values[2];
      const size_t at = begin + 2 * (token * testing::kProfileChannels + c);
      for (const std::string* each : {&file, &*restored}) {
        const auto byte = [&](size_t i) {
          return uint32_t{static_cast<uint8_t>((*each)[at + i])};
        };
        const uint32_t bits = byte(0) << 16 | byte(1) << 24;
        std::memcpy(&values[each == &file ? 0 : 1], &bits, sizeof(bits));
      }
      sum += (values[0] - values[1]) * (values[0] - values[1]);
    }
    return sum;
  };
  EXPECT_LT(error(2), 0.1);
}

}  // namespace
}  // namespace kvcompress
