// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Caches through the pipeline with a profile.

#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <memory>
#include <string>

#include "kvcompress/compressor.h"
#include "kvcompress/decompressor.h"
#include "kvcompress/error.h"
#include "profile/trained.h"

namespace kvcompress {
namespace {

using testing::CacheOf;
using testing::MakeFile;
using testing::NamedTensor;

constexpr size_t kTokens = 90;

std::shared_ptr<const Profile> TestProfile() {
  static const auto* const profile = [] {
    auto parsed = Profile::Parse(testing::TrainedProfile());
    EXPECT_TRUE(parsed.ok()) << parsed.status();
    return new std::shared_ptr<const Profile>(*std::move(parsed));
  }();
  return *profile;
}

// One whose steps are so fine that there is a trellis with effort best.
std::shared_ptr<const Profile> FineProfile() {
  static const auto* const profile = [] {
    auto parsed = Profile::Parse(
        testing::TrainedProfile(2, /*contract=*/false, {{"high", 0.125f, {}}}));
    EXPECT_TRUE(parsed.ok()) << parsed.status();
    return new std::shared_ptr<const Profile>(*std::move(parsed));
  }();
  return *profile;
}

CompressOptions WithProfile(std::string codec = "klt:high") {
  CompressOptions options;
  options.codec = std::move(codec);
  options.profile = TestProfile();
  options.reconstruct = true;
  return options;
}

absl::StatusOr<std::string> Restore(absl::string_view artefact,
                                    DecompressOptions options = {},
                                    size_t chunk = 1 << 20,
                                    size_t most = SIZE_MAX) {
  return testing::DecompressFile(artefact, std::move(options), chunk,
                                 /*report=*/nullptr, most);
}

DecompressOptions Knowing() {
  DecompressOptions options;
  options.profiles = {TestProfile(), FineProfile()};
  return options;
}

// Puts the tensors into an order in which no group is complete before another
// begins.
std::vector<NamedTensor> Shuffled(std::vector<NamedTensor> tensors) {
  std::stable_sort(tensors.begin(), tensors.end(),
                   [](const NamedTensor& a, const NamedTensor& b) {
                     return a.spec.name.back() > b.spec.name.back();
                   });
  return tensors;
}

TEST(Groups, RoundTripInAnyOrderOfTensorsAndCutAnywhere) {
  // Shuffled ones with a trellis.
  for (const bool shuffled : {false, true}) {
    std::vector<NamedTensor> tensors = CacheOf(kTokens, 5);
    if (shuffled) tensors = Shuffled(std::move(tensors));
    const std::string file = MakeFile(tensors);
    CompressOptions options = WithProfile();
    if (shuffled) {
      options.effort = Effort::kBest;
      options.profile = FineProfile();
    }
    const auto compressed = testing::CompressFile(file, options);
    ASSERT_TRUE(compressed.ok()) << compressed.status();
    EXPECT_LT(compressed->artefact.size() * 4, file.size());
    ASSERT_EQ(compressed->report.tensors.size(), tensors.size());
    for (size_t i = 0; i < tensors.size(); ++i) {
      const TensorReport& report = compressed->report.tensors[i];
      EXPECT_EQ(report.spec.name, tensors[i].spec.name);
      EXPECT_EQ(report.codec, "klt-profile:high");
      ASSERT_TRUE(report.metrics.snr_db.has_value());
      EXPECT_GT(*report.metrics.snr_db, 12) << report.spec.name;
      EXPECT_TRUE(report.metrics.token_snr_db_p1.has_value());
    }
    for (const size_t chunk : {size_t{1}, size_t{1000}, size_t{1} << 20}) {
      const auto restored = Restore(compressed->artefact, Knowing(), chunk, 97);
      ASSERT_TRUE(restored.ok()) << restored.status();
      EXPECT_EQ(*restored, compressed->reconstructed);
    }
  }
}

TEST(Groups, ATrellisIsSmallerAtTheSameErrors) {
  const std::string file = MakeFile(CacheOf(kTokens, 6));
  CompressOptions options = WithProfile();
  options.profile = FineProfile();
  const auto without = testing::CompressFile(file, options);
  options.effort = Effort::kBest;
  const auto with = testing::CompressFile(file, options);
  ASSERT_TRUE(without.ok() && with.ok());
  EXPECT_LT(with->artefact.size(), without->artefact.size());
  EXPECT_LT(with->report.metrics.rmse, 1.03 * without->report.metrics.rmse);
}

TEST(Groups, OneOfTheCandidatesIsChosenWhereJustOneFits) {
  const std::string file = MakeFile(CacheOf(kTokens, 6));
  CompressOptions options = WithProfile();
  options.profile = nullptr;
  const auto without = testing::CompressFile(file, options);
  ASSERT_TRUE(without.ok());
  EXPECT_FALSE(without->report.profile.has_value());

  options.candidate_profiles = {TestProfile()};
  const auto chosen = testing::CompressFile(file, options);
  const auto named = testing::CompressFile(file, WithProfile());
  ASSERT_TRUE(chosen.ok() && named.ok());
  EXPECT_EQ(chosen->artefact, named->artefact);
  ASSERT_TRUE(chosen->report.profile.has_value());
  EXPECT_EQ(chosen->report.profile->id.digest, TestProfile()->id().digest);
  EXPECT_EQ(chosen->report.profile->tensors, 8);
  EXPECT_EQ(chosen->report.tensors.back().profile_group, 1);
  EXPECT_TRUE(chosen->report.warnings.empty());

  // One that fits no better is no reason to guess.
  auto other = Profile::Parse(testing::TrainedProfile(1));
  ASSERT_TRUE(other.ok());
  options.candidate_profiles.push_back(*std::move(other));
  const auto several = testing::CompressFile(file, options);
  ASSERT_TRUE(several.ok());
  EXPECT_EQ(several->artefact, without->artefact);
  ASSERT_EQ(several->report.warnings.size(), 1);
  EXPECT_EQ(several->report.warnings[0].code, "PROFILE_AMBIGUOUS");

  // What does not go together with a profile is no error where none is named.
  options.candidate_profiles = {TestProfile()};
  for (const char* codec : {"int4", "klt:contract", "klt:1,1"}) {
    options.codec = codec;
    const auto alone = testing::CompressFile(file, options);
    ASSERT_TRUE(alone.ok()) << codec << alone.status();
    EXPECT_FALSE(alone->report.profile.has_value()) << codec;
  }
}

TEST(Groups, OtherTensorsAreCodedByKltAlone) {
  std::vector<NamedTensor> tensors = CacheOf(kTokens, 8);
  tensors.erase(tensors.begin());  // the second group stays whole
  NamedTensor table = tensors[0];
  table.spec.name = "block_table";
  table.spec.dtype = DType::kI16;
  tensors.insert(tensors.begin() + 4, table);
  const std::string file = MakeFile(tensors);
  const auto compressed = testing::CompressFile(file, WithProfile());
  ASSERT_TRUE(compressed.ok()) << compressed.status();
  EXPECT_EQ(compressed->report.tensors[0].codec, "klt:high");
  EXPECT_EQ(compressed->report.tensors[4].codec, "lossless");
  EXPECT_EQ(compressed->report.tensors.back().codec, "klt-profile:high");
  const auto restored = Restore(compressed->artefact, Knowing(), 100);
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_EQ(*restored, compressed->reconstructed);
}

TEST(Groups, TensorsAndTokensAreRestoredAlone) {
  const std::vector<NamedTensor> tensors = CacheOf(kTokens, 9);
  const auto compressed =
      testing::CompressFile(MakeFile(tensors), WithProfile());
  ASSERT_TRUE(compressed.ok());
  DecompressOptions options = Knowing();
  options.tensors = {"layer_2_key"};
  options.tokens = {10, 13};
  const auto some = Restore(compressed->artefact, options, 500);
  ASSERT_TRUE(some.ok()) << some.status();
  const auto all = Restore(compressed->artefact, Knowing());
  ASSERT_TRUE(all.ok());
  const size_t size = tensors[0].bytes.size();
  const absl::string_view data =
      absl::string_view(*all).substr(all->size() - tensors.size() * size);
  const size_t token = testing::kProfileChannels * 2;
  std::string expected;
  for (size_t head = 0; head < testing::kProfileHeads; ++head) {
    expected += std::string(
        data.substr(4 * size + (head * kTokens + 10) * token, 3 * token));
  }
  EXPECT_EQ(some->substr(some->size() - expected.size()), expected);
}

TEST(Groups, WithoutTheProfileNothingIsDecoded) {
  const auto compressed =
      testing::CompressFile(MakeFile(CacheOf(kTokens, 10)), WithProfile());
  ASSERT_TRUE(compressed.ok());
  const auto restored = Restore(compressed->artefact);
  EXPECT_EQ(restored.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(GetErrorDetail(restored.status())->reason, "PROFILE_MISSING");
  EXPECT_NE(restored.status().message().find(TestProfile()->id().digest),
            absl::string_view::npos);
  EXPECT_NE(restored.status().message().find("test model"),
            absl::string_view::npos);
}

TEST(Groups, DamageIsFound) {
  const auto compressed =
      testing::CompressFile(MakeFile(CacheOf(12, 11)), WithProfile());
  ASSERT_TRUE(compressed.ok());
  std::string artefact = compressed->artefact;
  for (size_t i = 0; i < artefact.size(); ++i) {
    for (int bit = 1; bit < 256; bit *= 2) {
      artefact[i] = static_cast<char>(artefact[i] ^ bit);
      EXPECT_FALSE(Restore(artefact, Knowing()).ok()) << i << " " << bit;
      artefact[i] = static_cast<char>(artefact[i] ^ bit);
    }
  }
  for (const size_t size : {artefact.size() / 2, artefact.size() - 1}) {
    EXPECT_EQ(Restore(artefact.substr(0, size), Knowing()).status().code(),
              absl::StatusCode::kDataLoss);
  }
}

TEST(Groups, WhatDoesNotGoTogetherIsRefused) {
  const std::string file = MakeFile(CacheOf(kTokens, 12));
  const auto reason = [&](const std::string& input, CompressOptions options) {
    const auto compressed = testing::CompressFile(input, std::move(options));
    const auto detail = GetErrorDetail(compressed.status());
    return detail ? detail->reason : "";
  };
  EXPECT_EQ(reason(file, WithProfile("int4")), "INVALID_OPTIONS");
  EXPECT_EQ(reason(file, WithProfile("klt:contract")), "UNKNOWN_PRESET");
  EXPECT_EQ(reason(MakeFile({CacheOf(kTokens, 12)[0]}), WithProfile()),
            "PROFILE_MISMATCH");
  EXPECT_EQ(reason(MakeFile(CacheOf(kTokens, 12), {{"first_token", "x"}}),
                   WithProfile()),
            "INVALID_OPTIONS");
}

TEST(Groups, WithoutAPresetTheMildestIsTaken) {
  const std::string file = MakeFile(CacheOf(kTokens, 12));
  const auto compressed = testing::CompressFile(file, WithProfile("klt"));
  ASSERT_TRUE(compressed.ok()) << compressed.status();
  EXPECT_EQ(compressed->report.codec, "klt:high");
  EXPECT_TRUE(compressed->report.profile.has_value());
  const auto named = testing::CompressFile(file, WithProfile("klt:high"));
  ASSERT_TRUE(named.ok()) << named.status();
  EXPECT_EQ(compressed->artefact, named->artefact);
}

TEST(Groups, ShortCachesAndLaterPositions) {
  for (const size_t tokens : {1, 2, 17, 300}) {
    for (const char* first : {"0", "1000"}) {
      const auto compressed = testing::CompressFile(
          MakeFile(CacheOf(tokens, 13), {{"first_token", first}}),
          WithProfile("klt:ultra"));
      ASSERT_TRUE(compressed.ok()) << compressed.status();
      const auto restored = Restore(compressed->artefact, Knowing());
      ASSERT_TRUE(restored.ok()) << restored.status();
      EXPECT_EQ(*restored, compressed->reconstructed);
    }
  }
}

// Bytes of this process that are in use, as the C library counts them; under
// sanitizers, which have an allocator of their own, always the same.
size_t InUse() {
  const struct mallinfo2 all = mallinfo2();
  return all.uordblks + all.hblkhd;
}

bool CountsWhatIsInUse() {
  const size_t before = InUse();
  const std::vector<char> more(size_t{1} << 20, 'x');
  return InUse() >= before + more.size() && more.back() == 'x';
}

TEST(Groups, StepsGiveNoMoreThanAskedAndHoldNoMoreThanStated) {
  // What is restored at once, and what the decompressor has besides.
  constexpr size_t kPiece = 64 << 10;
  constexpr size_t kOthers = 64 << 10;
  const auto compressed =
      testing::CompressFile(MakeFile(CacheOf(4000, 15)), WithProfile());
  ASSERT_TRUE(compressed.ok()) << compressed.status();
  for (const size_t most : {size_t{1}, size_t{1000}, kPiece, size_t{1} << 20}) {
    std::string restored;
    restored.reserve(compressed->reconstructed.size());
    std::string output;
    output.reserve(std::max(most, kPiece));
    absl::string_view left = compressed->artefact;
    size_t held = 0;
    const size_t before = InUse();
    Decompressor decompressor(Knowing(), {});
    for (bool more = true; more; output.clear()) {
      const auto step = decompressor.Restore(&left, most, &output);
      ASSERT_TRUE(step.ok()) << step.status();
      more = *step;
      EXPECT_LE(output.size(), std::max(most, kPiece));
      restored += output;
      const size_t now = InUse() - std::min(InUse(), before);
      EXPECT_LE(now, decompressor.working_bytes() + kOthers);
      held = std::max(held, now);
    }
    EXPECT_EQ(held > 0, CountsWhatIsInUse());
    EXPECT_TRUE(restored == compressed->reconstructed) << most;
    EXPECT_TRUE(decompressor.Finish().ok());
  }
}

TEST(Groups, EveryTypeOfNumbers) {
  for (const DType dtype : NumberDTypes()) {
    const auto compressed =
        testing::CompressFile(MakeFile(CacheOf(20, 14, dtype)), WithProfile());
    ASSERT_TRUE(compressed.ok()) << compressed.status();
    const auto restored = Restore(compressed->artefact, Knowing());
    ASSERT_TRUE(restored.ok()) << restored.status();
    EXPECT_EQ(*restored, compressed->reconstructed);
  }
}

TEST(Training, RefusesCachesThatDiffer) {
  testing::MemoryCache whole(CacheOf(50, 1));
  std::vector<NamedTensor> fewer = CacheOf(50, 2);
  fewer.pop_back();
  testing::MemoryCache part(fewer);
  std::vector<NamedTensor> infinite = CacheOf(50, 3);
  infinite[2].bytes.replace(0, 2, "\x80\x7f");
  testing::MemoryCache broken(infinite);
  const TrainingOptions options = {.label = "x"};
  TrainingCache* const two[] = {&whole, &part};
  TrainingCache* const bad[] = {&whole, &broken};
  for (const auto& caches : {absl::MakeConstSpan(two), absl::MakeConstSpan(bad),
                             absl::Span<TrainingCache* const>()}) {
    EXPECT_EQ(TrainProfile(options, caches).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace kvcompress
