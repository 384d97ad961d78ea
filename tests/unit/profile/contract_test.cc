// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The preset `contract` of a profile, and `auto` with one.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "kvcompress/compressor.h"
#include "kvcompress/decompressor.h"
#include "kvcompress/error.h"
#include "profile/group_exceptions.h"
#include "profile/trained.h"

namespace kvcompress {
namespace {

using std::string_literals::operator""s;
using testing::CacheOf;
using ::testing::Contains;
using testing::MakeFile;
using testing::NamedTensor;
using ::testing::Not;

constexpr size_t kContractTokens = 300;

std::shared_ptr<const Profile> ContractProfile() {
  static const auto* const profile = [] {
    auto parsed = Profile::Parse(testing::TrainedProfile(2, /*contract=*/true));
    EXPECT_TRUE(parsed.ok()) << parsed.status();
    return new std::shared_ptr<const Profile>(*std::move(parsed));
  }();
  return *profile;
}

CompressOptions WithContract(std::string codec) {
  CompressOptions options;
  options.codec = std::move(codec);
  options.profile = ContractProfile();
  options.reconstruct = true;
  return options;
}

absl::StatusOr<std::string> RestoreContract(absl::string_view artefact,
                                            size_t chunk = 1 << 20) {
  DecompressOptions options;
  options.profiles = {ContractProfile()};
  return testing::DecompressFile(artefact, options, chunk);
}

// A cache that no profile knows: keys and values without a common signal.
std::vector<NamedTensor> NoiseOf(size_t tokens) {
  std::vector<NamedTensor> tensors = CacheOf(tokens, 3);
  std::mt19937 engine(5);
  std::normal_distribution<float> normal(0, 3);
  for (NamedTensor& tensor : tensors) {
    const size_t elements = tensor.bytes.size() / DTypeSize(tensor.spec.dtype);
    tensor.bytes.clear();
    for (size_t i = 0; i < elements; ++i) {
      AppendElement(tensor.spec.dtype, normal(engine), &tensor.bytes);
    }
  }
  return tensors;
}

TEST(Contract, EveryTensorHoldsItsBounds) {
  const std::string file = MakeFile(CacheOf(kContractTokens, 1));
  const auto compressed =
      testing::CompressFile(file, WithContract("klt:contract"));
  ASSERT_TRUE(compressed.ok()) << compressed.status();
  EXPECT_EQ(compressed->report.tensors_failed, 0);
  EXPECT_TRUE(compressed->report.verdict.passed);
  EXPECT_EQ(compressed->report.tensors[0].codec, "klt-profile:contract");
  CompressOptions alone = WithContract("klt:contract");
  alone.profile = nullptr;
  const auto stateless = testing::CompressFile(file, alone);
  ASSERT_TRUE(stateless.ok());
  EXPECT_LT(compressed->artefact.size(), stateless->artefact.size());
  for (const size_t chunk : {size_t{1}, size_t{777}, size_t{1} << 20}) {
    const auto restored = RestoreContract(compressed->artefact, chunk);
    ASSERT_TRUE(restored.ok()) << restored.status();
    EXPECT_EQ(*restored, compressed->reconstructed);
  }
}

TEST(Contract, BoundsOfTheRequestAreHeld) {
  const std::function<void(QualityThresholds*)> changes[] = {
      [](QualityThresholds* bounds) { bounds->max_rmse = 0.01; },
      [](QualityThresholds* bounds) { bounds->max_error = 0.05; },
      [](QualityThresholds* bounds) { bounds->min_snr_db = 45; },
      [](QualityThresholds* bounds) { bounds->min_cosine_similarity = 0.9999; },
      [](QualityThresholds* bounds) { bounds->min_token_snr_db_p1 = 25; },
      [](QualityThresholds* bounds) { bounds->min_centred_snr_db = 25; },
      [](QualityThresholds* bounds) { *bounds = {.max_error = 1e-9}; },
  };
  for (const auto& change : changes) {
    CompressOptions options = WithContract("klt:contract");
    change(&options.thresholds);
    const auto compressed =
        testing::CompressFile(MakeFile(CacheOf(60, 22)), options);
    ASSERT_TRUE(compressed.ok()) << compressed.status();
    EXPECT_EQ(compressed->report.tensors_failed, 0) << &change - changes;
    const auto restored = RestoreContract(compressed->artefact);
    ASSERT_TRUE(restored.ok()) << restored.status();
    EXPECT_EQ(*restored, compressed->reconstructed);
  }
}

TEST(Contract, TensorsUnlikeThoseOfTheTrainingHoldThemToo) {
  std::vector<NamedTensor> tensors = CacheOf(kContractTokens, 23);
  tensors[2].bytes = NoiseOf(kContractTokens)[2].bytes;
  tensors[5].bytes.assign(tensors[5].bytes.size(), '\0');
  const auto compressed =
      testing::CompressFile(MakeFile(tensors), WithContract("klt:contract"));
  ASSERT_TRUE(compressed.ok()) << compressed.status();
  EXPECT_EQ(compressed->report.tensors_failed, 0);
  const auto restored = RestoreContract(compressed->artefact);
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_EQ(*restored, compressed->reconstructed);
}

TEST(Contract, TokensAreRestoredAlone) {
  CompressOptions options = WithContract("klt:contract");
  options.thresholds.max_error = 0.1;  // some exceptions
  const auto compressed =
      testing::CompressFile(MakeFile(CacheOf(kContractTokens, 24)), options);
  ASSERT_TRUE(compressed.ok());
  DecompressOptions some;
  some.profiles = {ContractProfile()};
  some.tensors = {"layer_3_value"};
  some.tokens = {50, 60};
  const auto part = testing::DecompressFile(compressed->artefact, some);
  ASSERT_TRUE(part.ok()) << part.status();
  const size_t row = testing::kProfileChannels * 2;
  const size_t head = kContractTokens * row;
  for (size_t h = 0; h < testing::kProfileHeads; ++h) {
    const size_t back = (testing::kProfileHeads - h) * head - 50 * row;
    EXPECT_EQ(
        part->substr(part->size() - (testing::kProfileHeads - h) * 10 * row,
                     10 * row),
        compressed->reconstructed.substr(
            compressed->reconstructed.size() - back, 10 * row));
  }
}

TEST(Auto, TakesTheProfileWhereItIsSmaller) {
  const std::string file = MakeFile(CacheOf(kContractTokens, 1));
  CompressOptions options = WithContract("auto");
  const auto named = testing::CompressFile(file, options);
  options.candidate_profiles = {std::exchange(options.profile, nullptr)};
  const auto offered = testing::CompressFile(file, options);
  ASSERT_TRUE(named.ok()) << named.status();
  ASSERT_TRUE(offered.ok()) << offered.status();
  EXPECT_EQ(named->artefact, offered->artefact);
  EXPECT_EQ(named->report.tensors_failed, 0);
  ASSERT_TRUE(named->report.profile.has_value());
  EXPECT_EQ(named->report.profile->tensors, 8);
  EXPECT_EQ(named->report.tensors[0].codec, "klt-profile:contract");
  const auto restored = RestoreContract(named->artefact);
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_EQ(*restored, named->reconstructed);
  options.candidate_profiles.clear();
  const auto without = testing::CompressFile(file, options);
  ASSERT_TRUE(without.ok());
  EXPECT_LT(named->artefact.size(), without->artefact.size());
}

TEST(Auto, DoesWithoutAProfileThatDoesNotFit) {
  const std::string file = MakeFile(NoiseOf(kContractTokens));
  CompressOptions options = WithContract("auto");
  for (const bool reconstruct : {false, true}) {
    options.reconstruct = reconstruct;
    const auto compressed = testing::CompressFile(file, options, 999);
    ASSERT_TRUE(compressed.ok()) << compressed.status();
    EXPECT_EQ(compressed->report.tensors_failed, 0);
    EXPECT_FALSE(compressed->report.profile.has_value());
    ASSERT_EQ(compressed->report.warnings.size(), 1);
    EXPECT_EQ(compressed->report.warnings[0].code, "PROFILE_POOR_FIT");
    uint64_t payloads = 0;
    for (const TensorReport& tensor : compressed->report.tensors) {
      EXPECT_NE(tensor.codec, "klt-profile:contract");
      EXPECT_FALSE(tensor.profile_group.has_value());
      payloads += tensor.compressed_size;
    }
    EXPECT_LT(payloads, compressed->artefact.size());
    // It needs no profile.
    const auto restored = testing::DecompressFile(compressed->artefact, {});
    ASSERT_TRUE(restored.ok()) << restored.status();
    if (reconstruct) {
      EXPECT_EQ(*restored, compressed->reconstructed);
    }
  }
}

std::vector<std::string> WarningsOf(const CompressReport& report) {
  std::vector<std::string> codes;
  for (const Warning& warning : report.warnings) codes.push_back(warning.code);
  return codes;
}

TEST(Contract, WarnsWhereBoundsTakeMuch) {
  const CompressOptions options = WithContract("klt:contract");
  const auto usual =
      testing::CompressFile(MakeFile(CacheOf(kContractTokens, 1)), options);
  ASSERT_TRUE(usual.ok()) << usual.status();
  EXPECT_THAT(WarningsOf(usual->report), Not(Contains("PROFILE_POOR_RATE")));
  const auto dear =
      testing::CompressFile(MakeFile(NoiseOf(kContractTokens)), options);
  ASSERT_TRUE(dear.ok()) << dear.status();
  EXPECT_EQ(dear->report.tensors_failed, 0);
  EXPECT_THAT(WarningsOf(dear->report), Contains("PROFILE_POOR_RATE").Times(1));
}

// Such payloads once had three times the bytes of the tensors, and took ten
// times as long as others.
TEST(Contract, IsRefusedWhereItTakesFarMoreThanTheTensors) {
  std::vector<NamedTensor> tensors = CacheOf(kContractTokens, 1);
  for (NamedTensor& tensor : tensors) {
    // Every tenth value is large, of either sign.
    tensor.bytes.clear();
    for (uint64_t i = 0; i < *ElementCount(tensor.spec); ++i) {
      const float large = i % 3 == 0 ? 50000 : -40000;
      AppendElement(tensor.spec.dtype,
                    i % 10 == 7 ? large * static_cast<float>(i % 13) / 13 : 0,
                    &tensor.bytes);
    }
  }
  const std::string file = MakeFile(tensors);
  const auto refused =
      testing::CompressFile(file, WithContract("klt:contract"));
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(GetErrorDetail(refused.status())->reason, "PROFILE_UNSUITABLE");
  const auto without = testing::CompressFile(file, WithContract("auto"));
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_EQ(without->report.tensors_failed, 0);
  EXPECT_LT(without->artefact.size(), file.size());
}

// A tensor with NaN once failed calls of auto with a profile.
TEST(Auto, KeepsWhatIsNotFiniteWithoutLossAndWarns) {
  std::vector<NamedTensor> tensors = CacheOf(kContractTokens, 26);
  const std::string nan(2, '\xff');
  tensors[2].bytes.replace(0, nan.size(), nan);
  const std::string file = MakeFile(tensors);
  CompressOptions without = WithContract("auto");
  without.profile = nullptr;
  for (const CompressOptions& options : {WithContract("auto"), without}) {
    const auto compressed = testing::CompressFile(file, options);
    ASSERT_TRUE(compressed.ok()) << compressed.status();
    EXPECT_EQ(compressed->report.tensors_failed, 0);
    EXPECT_EQ(compressed->report.tensors[2].codec, "lossless");
    EXPECT_NE(compressed->report.tensors[0].codec, "lossless");
    EXPECT_THAT(WarningsOf(compressed->report),
                Contains("NOT_FINITE").Times(1));
    EXPECT_EQ(compressed->report.warnings.back().tensor, tensors[2].spec.name);
    const auto restored = RestoreContract(compressed->artefact);
    ASSERT_TRUE(restored.ok()) << restored.status();
    EXPECT_EQ(*restored, compressed->reconstructed);
  }
}

TEST(Auto, DecidesGroupByGroup) {
  std::vector<NamedTensor> tensors = CacheOf(kContractTokens, 26);
  const std::vector<NamedTensor> noise = NoiseOf(kContractTokens);
  for (size_t i = 4; i < tensors.size(); ++i) tensors[i] = noise[i];
  std::swap(tensors[1], tensors[6]);
  const auto compressed =
      testing::CompressFile(MakeFile(tensors), WithContract("auto"));
  ASSERT_TRUE(compressed.ok()) << compressed.status();
  ASSERT_TRUE(compressed->report.profile.has_value());
  EXPECT_EQ(compressed->report.profile->tensors, 4);
  EXPECT_EQ(compressed->report.tensors_failed, 0);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const bool known = *compressed->report.tensors[i].spec.layer < 2;
    EXPECT_EQ(compressed->report.tensors[i].profile_group.has_value(), known);
  }
  const auto restored = RestoreContract(compressed->artefact, 333);
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_EQ(*restored, compressed->reconstructed);
}

TEST(Auto, ANamedProfileWithoutThePresetIsRefused) {
  CompressOptions options = WithContract("auto");
  auto other = Profile::Parse(testing::TrainedProfile());
  ASSERT_TRUE(other.ok());
  options.profile = *other;
  const std::string file = MakeFile(CacheOf(30, 27));
  const auto compressed = testing::CompressFile(file, options);
  EXPECT_EQ(GetErrorDetail(compressed.status())->reason, "UNKNOWN_PRESET");
  EXPECT_TRUE(absl::StrContains(compressed.status().message(),
                                "auto needs the preset of a profile"));
  options.candidate_profiles = {std::exchange(options.profile, nullptr)};
  const auto offered = testing::CompressFile(file, options);
  ASSERT_TRUE(offered.ok());
  EXPECT_FALSE(offered->report.profile.has_value());
}

TEST(Exceptions, ReplaceElementsInAnyOrderOfReading) {
  std::string source;
  std::string decoded;
  for (int i = 0; i < 5000; ++i) {
    AppendElement(DType::kF32, static_cast<float>(i), &source);
    const bool off = i % 1000 == 7 || i == 4999 || (i > 3000 && i < 3005);
    AppendElement(DType::kF32, static_cast<float>(off ? i + 2 : i), &decoded);
  }
  const std::string before = decoded;
  const std::string list =
      profile::TakeExceptions(DType::kF32, source, 1.0f,
                              /*checkpoint=*/nullptr, &decoded);
  EXPECT_EQ(decoded, source);
  EXPECT_EQ(list.size(), 10 * 5 + 5);  // five gaps of two bytes
  EXPECT_TRUE(profile::CheckExceptions(list, DType::kF32, 5000, nullptr).ok());
  EXPECT_FALSE(profile::CheckExceptions(list, DType::kF32, 4999, nullptr).ok());
  profile::ExceptionCursor cursor(list, DType::kF32);
  for (const auto& [first, count] :
       {std::pair(0, 100), {50, 100}, {3001, 3}, {2000, 3000}, {0, 5000}}) {
    std::string part = before.substr(4 * first, 4 * count);
    cursor.Apply(first, count, reinterpret_cast<uint8_t*>(part.data()));
    EXPECT_EQ(part, source.substr(4 * first, 4 * count)) << first;
  }
}

TEST(Exceptions, ListsThatBreakARuleAreRefused) {
  const auto ok = [](const std::string& list) {
    return profile::CheckExceptions(list, DType::kBF16, 10, nullptr).ok();
  };
  EXPECT_TRUE(ok(""));
  EXPECT_TRUE(ok("\x09\x80\x3f"s));
  EXPECT_FALSE(ok("\x0a\x80\x3f"s));                  // beyond
  EXPECT_FALSE(ok("\x09\x80"s));                      // cut short
  EXPECT_FALSE(ok("\x80\x00\x80\x3f"s));              // a longer gap
  EXPECT_FALSE(ok("\x01\x80\x7f"s));                  // infinite
  EXPECT_FALSE(ok(std::string(9, '\xff') + "\x01"));  // too many bytes
}

}  // namespace
}  // namespace kvcompress
