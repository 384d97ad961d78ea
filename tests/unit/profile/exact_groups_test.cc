// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Caches through the pipeline by `lossless` with a profile.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kvcompress/compressor.h"
#include "kvcompress/decompressor.h"
#include "kvcompress/error.h"
#include "profile/trained.h"

namespace kvcompress {
namespace {

using testing::CacheOf;
using testing::MakeFile;
using testing::NamedTensor;

constexpr size_t kExactTokens = 90;

std::shared_ptr<const Profile> Parsed(const std::string& bytes) {
  auto parsed = Profile::Parse(bytes);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return *std::move(parsed);
}

std::shared_ptr<const Profile> PresetsProfile() {
  static const auto* const profile =
      new std::shared_ptr<const Profile>(Parsed(testing::TrainedProfile()));
  return *profile;
}

// With the preset `contract`.
std::shared_ptr<const Profile> BoundsProfile() {
  static const auto* const profile = new std::shared_ptr<const Profile>(
      Parsed(testing::TrainedProfile(2, /*contract=*/true)));
  return *profile;
}

CompressOptions Exactly() {
  CompressOptions options;
  options.codec = "lossless";
  options.profile = PresetsProfile();
  return options;
}

DecompressOptions KnowingBoth() {
  DecompressOptions options;
  options.profiles = {PresetsProfile(), BoundsProfile()};
  return options;
}

absl::StatusOr<std::string> RestoreExactly(absl::string_view artefact,
                                           size_t chunk = 1 << 20,
                                           size_t most = SIZE_MAX) {
  return testing::DecompressFile(artefact, KnowingBoth(), chunk,
                                 /*report=*/nullptr, most);
}

TEST(ExactGroups, ComeBackBitByBit) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    const std::string file = MakeFile(CacheOf(400, 5, dtype));
    CompressOptions alone = Exactly();
    alone.profile = nullptr;
    const auto without = testing::CompressFile(file, alone);
    ASSERT_TRUE(without.ok()) << without.status();
    for (const Effort effort :
         {Effort::kFast, Effort::kBalanced, Effort::kBest}) {
      for (const auto& [profile, preset] :
           {std::pair(PresetsProfile(), "high"),
            std::pair(BoundsProfile(), "contract")}) {
        CompressOptions options = Exactly();
        options.effort = effort;
        options.profile = profile;
        const auto compressed = testing::CompressFile(file, options);
        ASSERT_TRUE(compressed.ok()) << compressed.status();
        EXPECT_LT(compressed->artefact.size(), without->artefact.size());
        EXPECT_EQ(compressed->report.codec, "lossless");
        EXPECT_EQ(compressed->report.metrics.rmse, 0);
        ASSERT_TRUE(compressed->report.profile.has_value());
        EXPECT_FALSE(compressed->report.profile->preset->expected.has_value());
        for (const TensorReport& tensor : compressed->report.tensors) {
          EXPECT_EQ(tensor.codec, absl::StrCat("lossless-profile:", preset))
              << DTypeName(dtype) << " " << static_cast<int>(effort);
          EXPECT_EQ(tensor.metrics.max_error, 0);
        }
        for (const size_t chunk : {size_t{1}, size_t{1000}, size_t{1} << 20}) {
          const auto restored = RestoreExactly(compressed->artefact, chunk, 97);
          ASSERT_TRUE(restored.ok()) << restored.status();
          EXPECT_EQ(*restored, file);
        }
      }
    }
  }
}

TEST(ExactGroups, KeepWhatIsNotFiniteAndTheSignsOfZeros) {
  std::vector<NamedTensor> tensors = CacheOf(kExactTokens, 6);
  const uint16_t odd[] = {0x7f80, 0xff80, 0x7fc1, 0xff81, 0x8000,
                          0x0000, 0x0001, 0x8001, 0x7f7f, 0xff7f};
  for (NamedTensor& tensor : tensors) {
    for (size_t i = 0; i < std::size(odd); ++i) {
      tensor.bytes.replace(200 * i, 2, reinterpret_cast<const char*>(&odd[i]),
                           2);
    }
  }
  const std::string file = MakeFile(tensors);
  const auto compressed = testing::CompressFile(file, Exactly());
  ASSERT_TRUE(compressed.ok()) << compressed.status();
  EXPECT_EQ(compressed->report.metrics.rmse, 0);
  const auto restored = RestoreExactly(compressed->artefact);
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_EQ(*restored, file);
}

// Of one with few outliers, of one that the profile does not suit, and of one
// that is too short for tables of its own.
TEST(ExactGroups, AreNeverLargerThanLosslessAlone) {
  std::vector<NamedTensor> outliers = CacheOf(600, 5);
  for (NamedTensor& tensor : outliers) {
    for (size_t i = 0; i < testing::kProfileChannels; ++i) {
      tensor.bytes.replace(6400 + 2 * i, 2, "\x7f\x7f");
    }
  }
  std::vector<NamedTensor> other = CacheOf(600, 5);
  std::mt19937 engine(3);
  for (NamedTensor& tensor : other) {
    for (char& byte : tensor.bytes) byte = static_cast<char>(engine());
  }
  for (const auto& [tensors, uses] :
       {std::pair(outliers, true), std::pair(other, false),
        std::pair(CacheOf(3, 5), false)}) {
    const std::string file = MakeFile(tensors);
    CompressOptions alone = Exactly();
    alone.profile = nullptr;
    const auto without = testing::CompressFile(file, alone);
    const auto with = testing::CompressFile(file, Exactly());
    ASSERT_TRUE(without.ok() && with.ok()) << with.status();
    EXPECT_EQ(with->report.profile.has_value(), uses);
    // But for what is reserved in the header.
    EXPECT_LT(with->artefact.size(), without->artefact.size() + 512);
    EXPECT_TRUE(with->report.verdict.passed);
    EXPECT_EQ(with->report.metrics.rmse, 0);
    const auto restored = RestoreExactly(with->artefact);
    ASSERT_TRUE(restored.ok()) << restored.status();
    EXPECT_EQ(*restored, file);
  }
}

TEST(ExactGroups, LongHeadsHaveSeveralBlocks) {
  // 4,096 tokens of 16 channels are a block.
  for (const size_t tokens : {size_t{1}, size_t{4096}, size_t{9000}}) {
    const std::string file = MakeFile(CacheOf(tokens, 7));
    const auto compressed = testing::CompressFile(file, Exactly());
    ASSERT_TRUE(compressed.ok()) << compressed.status();
    const auto restored =
        RestoreExactly(compressed->artefact, 1 << 20, 100'000);
    ASSERT_TRUE(restored.ok()) << restored.status();
    EXPECT_EQ(*restored, file);
  }
}

TEST(ExactGroups, TensorsAndTokensAreRestoredAlone) {
  const std::vector<NamedTensor> tensors = CacheOf(9000, 9);
  const auto compressed = testing::CompressFile(MakeFile(tensors), Exactly());
  ASSERT_TRUE(compressed.ok());
  DecompressOptions options = KnowingBoth();
  options.tensors = {"layer_2_key"};
  options.tokens = {4090, 4100};
  const auto some = testing::DecompressFile(compressed->artefact, options, 500);
  ASSERT_TRUE(some.ok()) << some.status();
  const size_t token = testing::kProfileChannels * 2;
  std::string expected;
  for (size_t head = 0; head < testing::kProfileHeads; ++head) {
    expected +=
        tensors[4].bytes.substr((head * 9000 + 4090) * token, 10 * token);
  }
  EXPECT_EQ(some->substr(some->size() - expected.size()), expected);
}

TEST(ExactGroups, OtherTensorsAreLosslessAlone) {
  std::vector<NamedTensor> tensors = CacheOf(kExactTokens, 8);
  tensors.erase(tensors.begin());  // the second group stays whole
  const std::string file = MakeFile(tensors);
  const auto compressed = testing::CompressFile(file, Exactly());
  ASSERT_TRUE(compressed.ok()) << compressed.status();
  EXPECT_EQ(compressed->report.tensors[0].codec, "lossless");
  EXPECT_EQ(compressed->report.tensors.back().codec, "lossless-profile:high");
  const auto restored = RestoreExactly(compressed->artefact);
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_EQ(*restored, file);
}

TEST(ExactGroups, OnlyANamedProfileIsUsed) {
  const std::string file = MakeFile(CacheOf(kExactTokens, 6));
  CompressOptions options = Exactly();
  options.profile = nullptr;
  options.candidate_profiles = {BoundsProfile()};
  const auto compressed = testing::CompressFile(file, options);
  ASSERT_TRUE(compressed.ok()) << compressed.status();
  EXPECT_FALSE(compressed->report.profile.has_value());
  EXPECT_EQ(compressed->report.tensors[0].codec, "lossless");
}

TEST(ExactGroups, WhatDoesNotGoTogetherIsRefused) {
  const auto reason = [](const std::string& file, CompressOptions options) {
    const auto compressed = testing::CompressFile(file, std::move(options));
    const auto detail = GetErrorDetail(compressed.status());
    return detail ? detail->reason : "";
  };
  EXPECT_EQ(reason(MakeFile(CacheOf(kExactTokens, 12, DType::kF32)), Exactly()),
            "PROFILE_MISMATCH");
  EXPECT_EQ(reason(MakeFile({CacheOf(kExactTokens, 12)[0]}), Exactly()),
            "PROFILE_MISMATCH");
  CompressOptions staged = Exactly();
  staged.codec = "lossless+zstd";
  EXPECT_EQ(reason(MakeFile(CacheOf(kExactTokens, 12)), staged),
            "INVALID_OPTIONS");
}

TEST(ExactGroups, DamageIsFound) {
  const auto compressed =
      testing::CompressFile(MakeFile(CacheOf(6, 11)), Exactly());
  ASSERT_TRUE(compressed.ok());
  std::string artefact = compressed->artefact;
  for (size_t i = 0; i < artefact.size(); ++i) {
    const int bit = 1 << i % 8;
    artefact[i] = static_cast<char>(artefact[i] ^ bit);
    EXPECT_FALSE(RestoreExactly(artefact).ok()) << i << " " << bit;
    artefact[i] = static_cast<char>(artefact[i] ^ bit);
  }
}

}  // namespace
}  // namespace kvcompress
