// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Caches and profiles under every set of kernels: with tiles, groups go another
// way.

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "kvcompress/compressor.h"
#include "kvcompress/decompressor.h"
#include "kvcompress/kernels.h"
#include "profile/trained.h"

namespace kvcompress {
namespace {

using testing::CacheOf;
using testing::kProfileChannels;
using testing::MakeFile;
using testing::NamedTensor;

constexpr const char* kKernels[] = {
    "portable", "sse4", "avx2", "avx512", "amx", "neon", "portable-tiles"};

CompressOptions WithFineProfile() {
  // Its steps are so fine that there is a trellis with effort best.
  static const auto* const profile = [] {
    auto parsed = Profile::Parse(
        testing::TrainedProfile(2, /*contract=*/false, {{"high", 0.125f, {}}}));
    EXPECT_TRUE(parsed.ok()) << parsed.status();
    return new std::shared_ptr<const Profile>(*std::move(parsed));
  }();
  CompressOptions options;
  options.codec = "klt:high";
  options.profile = *profile;
  options.reconstruct = true;
  return options;
}

TEST(GroupKernels, EverySetDecodesToTheSameBytes) {
  const std::string before(ActiveKernels());
  const std::string file = MakeFile(CacheOf(/*tokens=*/90, 6));
  for (const Effort effort : {Effort::kBalanced, Effort::kBest}) {
    CompressOptions options = WithFineProfile();
    options.effort = effort;
    DecompressOptions knowing;
    knowing.profiles = {options.profile};
    const auto compressed = testing::CompressFile(file, options);
    ASSERT_TRUE(compressed.ok());
    for (const char* name : kKernels) {
      if (!SelectKernels(name).ok()) continue;
      const auto restored =
          testing::DecompressFile(compressed->artefact, knowing);
      ASSERT_TRUE(restored.ok()) << restored.status();
      EXPECT_EQ(*restored, compressed->reconstructed) << name;
      const auto again = testing::CompressFile(file, options);
      ASSERT_TRUE(again.ok());
      EXPECT_EQ(again->artefact, compressed->artefact) << name;
    }
    ASSERT_TRUE(SelectKernels(before).ok());
  }
}

TEST(GroupKernels, EverySetTrainsTheSameProfile) {
  const std::string before(ActiveKernels());
  ASSERT_TRUE(SelectKernels("portable").ok());
  const std::string wanted = testing::TrainedProfile();
  for (const char* name : kKernels) {
    if (!SelectKernels(name).ok()) continue;
    EXPECT_EQ(testing::TrainedProfile(), wanted) << name;
  }
  ASSERT_TRUE(SelectKernels(before).ok());
}

// Quanta of every size: some tokens are larger than others, so that what fits a
// byte, 16 bits or 32 bits is in one block.
TEST(GroupKernels, EverySetRestoresTokensOfAnySize) {
  const std::string before(ActiveKernels());
  for (const size_t tokens : {size_t{1}, size_t{20}, size_t{600}}) {
    std::vector<NamedTensor> tensors = CacheOf(tokens, 6, DType::kF32);
    for (NamedTensor& tensor : tensors) {
      const size_t row = kProfileChannels * sizeof(float);
      for (size_t i = 0; i < tensor.bytes.size(); i += sizeof(float)) {
        const size_t token = i / row % tokens;
        float value;
        std::memcpy(&value, &tensor.bytes[i], sizeof(value));
        if (token % 4 == 1) value *= 30;
        if (token % 4 == 2) value *= static_cast<float>(token * 4);
        if (token % 16 == 3) value *= 1e4f;
        std::memcpy(&tensor.bytes[i], &value, sizeof(value));
      }
    }
    const std::string file = MakeFile(tensors);
    const CompressOptions options = WithFineProfile();
    ASSERT_TRUE(SelectKernels("portable").ok());
    const auto compressed = testing::CompressFile(file, options);
    ASSERT_TRUE(compressed.ok()) << compressed.status();
    for (const char* name : kKernels) {
      if (!SelectKernels(name).ok()) continue;
      const auto again = testing::CompressFile(file, options);
      ASSERT_TRUE(again.ok()) << again.status();
      EXPECT_EQ(again->artefact, compressed->artefact) << name << tokens;
      EXPECT_EQ(again->reconstructed, compressed->reconstructed)
          << name << tokens;
    }
    ASSERT_TRUE(SelectKernels(before).ok());
  }
}

}  // namespace
}  // namespace kvcompress
