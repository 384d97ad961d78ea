// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "kvcompress/checkpoint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "kernels/rans.h"
#include "kvcompress/codec.h"
#include "kvcompress/compressor.h"
#include "kvcompress/decompressor.h"
#include "kvcompress/profile.h"
#include "profile/group_decoder.h"
#include "profile/group_format.h"
#include "profile/member_restorer.h"
#include "profile/trained.h"
#include "support/safetensors_file.h"

namespace kvcompress {
namespace {

using testing::CompressFile;
using testing::MakeFile;
using testing::RandomBytes;

constexpr uint64_t kNever = ~uint64_t{0};

struct Outcome {
  absl::Status status;
  std::string artefact;
  uint64_t looks = 0;
};

std::shared_ptr<const Profile> TestProfile() {
  auto profile = Profile::Parse(testing::TrainedProfile());
  EXPECT_TRUE(profile.ok()) << profile.status();
  return *std::move(profile);
}

// Compresses; from the look number `last` on, the result is not wanted.
Outcome CompressUntil(const std::string& file, CompressOptions options,
                      uint64_t last) {
  // Each time a new one: what was prepared of a profile is kept with it.
  if (options.profile != nullptr) options.profile = TestProfile();
  Outcome outcome;
  CompressLimits limits;
  limits.still_wanted = [&] {
    return outcome.looks++ < last ? absl::OkStatus()
                                  : absl::CancelledError("not wanted");
  };
  Compressor compressor(options, limits);
  CompressOutput output;
  outcome.status = compressor.Append(file, &output);
  if (!outcome.status.ok()) return outcome;
  outcome.status = compressor.Finish().status();
  if (outcome.status.ok()) {
    outcome.artefact = compressor.header() + output.artefact;
  }
  return outcome;
}

// Keys that a rotation is looked for in, and values; more than a block of each.
std::string TwoTensors() {
  const std::vector<uint64_t> shape = {1, 2, 1100, 64};
  constexpr uint64_t kElements = uint64_t{2} * 1100 * 64;
  return MakeFile(
      {{{.name = "layer_0_key", .dtype = DType::kBF16, .shape = shape},
        RandomBytes(DType::kBF16, kElements, 1)},
       {{.name = "layer_0_value", .dtype = DType::kF16, .shape = shape},
        RandomBytes(DType::kF16, kElements, 2)}});
}

// What is compressed, and how.
struct Choice {
  std::string file;
  CompressOptions options;
};

Choice WithProfile() {
  Choice choice = {.file = MakeFile(testing::CacheOf(1100, 5))};
  choice.options.codec = "klt:high";
  choice.options.profile = TestProfile();
  return choice;
}

std::vector<Choice> AllChoices() {
  const std::string file = TwoTensors();
  std::vector<Choice> all = {WithProfile()};
  for (const Codec* codec : AllCodecs()) {
    const std::vector<std::string> choices = codec->SelfTestParameters();
    for (const std::string& parameters : choices) {
      const auto string = [&](absl::string_view compressor) {
        return CodecString(codec->traits().name, parameters, compressor);
      };
      CompressOptions options;
      options.codec = string("");
      options.thresholds.min_snr_db = 3;
      all.push_back({file, options});
      if (!codec->traits().presets.empty() && parameters != choices[0]) {
        continue;
      }
      options.codec = string("zstd");
      all.push_back({file, options});
      if (codec->traits().streaming) continue;
      options.codec = string("");
      options.effort = Effort::kBest;
      all.push_back({file, options});
    }
  }
  return all;
}

TEST(CheckpointTest, EveryCodecLooksOftenAndGivesTheSameBytes) {
  for (const auto& [file, options] : AllChoices()) {
    const Outcome outcome = CompressUntil(file, options, kNever);
    ASSERT_TRUE(outcome.status.ok()) << outcome.status;
    EXPECT_GE(outcome.looks, file.size() >> 16) << options.codec;
    EXPECT_EQ(outcome.artefact, CompressFile(file, options)->artefact);
  }
}

// Wherever it stops: at once, with the error that it was told.
TEST(CheckpointTest, WorkEndsWhereItIsNotWanted) {
  for (const auto& [file, options] : AllChoices()) {
    const uint64_t looks = CompressUntil(file, options, kNever).looks;
    std::set<uint64_t> stops = {0, 1, 2, looks - 2, looks - 1};
    for (uint64_t i = 1; i < 8; ++i) stops.insert(looks * i / 8);
    for (const uint64_t stop : stops) {
      const Outcome outcome = CompressUntil(file, options, stop);
      EXPECT_EQ(outcome.status, absl::CancelledError("not wanted"))
          << options.codec << " " << stop << " of " << looks;
      // It was asked once more, and never again.
      EXPECT_EQ(outcome.looks, stop + 1) << options.codec;
    }
  }
}

// Restores; from the look number `last` on, the result is not wanted.
Outcome DecompressUntil(absl::string_view artefact,
                        const DecompressOptions& options, uint64_t last) {
  Outcome outcome;
  DecompressLimits limits;
  limits.still_wanted = [&] {
    return outcome.looks++ < last ? absl::OkStatus()
                                  : absl::CancelledError("not wanted");
  };
  Decompressor decompressor(options, limits);
  for (bool more = true; more && outcome.status.ok();) {
    const absl::StatusOr<bool> step =
        decompressor.Restore(&artefact, SIZE_MAX, &outcome.artefact);
    outcome.status = step.status();
    more = step.ok() && *step;
  }
  return outcome;
}

TEST(CheckpointTest, RestoringAGroupLooksOftenAndEnds) {
  const Choice choice = WithProfile();
  const std::string artefact =
      CompressFile(choice.file, choice.options)->artefact;
  DecompressOptions options;
  options.profiles = {choice.options.profile};
  const Outcome whole = DecompressUntil(artefact, options, kNever);
  ASSERT_TRUE(whole.status.ok()) << whole.status;
  EXPECT_EQ(whole.artefact, *testing::DecompressFile(artefact, options));
  EXPECT_GE(whole.looks, choice.file.size() >> 16);
  for (const uint64_t stop : {uint64_t{0}, whole.looks / 2, whole.looks - 1}) {
    const Outcome outcome = DecompressUntil(artefact, options, stop);
    EXPECT_EQ(outcome.status, absl::CancelledError("not wanted")) << stop;
    EXPECT_EQ(outcome.looks, stop + 1);
  }
}

// A header of 131,072 tensors took a second that nobody could end: it is read,
// planned and written in steps, of which each looks at every 256th tensor.
TEST(CheckpointTest, AHeaderOfManyTensorsWasOneStep) {
  constexpr uint64_t kTensors = 4096;
  std::vector<testing::NamedTensor> tensors;
  for (uint64_t i = 0; i < kTensors; ++i) {
    tensors.push_back({{.name = std::to_string(i), .shape = {0}}, ""});
  }
  const std::string file = MakeFile(tensors);
  constexpr uint64_t kLooks = kTensors / 256;
  const CompressOptions options = {.codec = "int8"};
  const Outcome compressed = CompressUntil(file, options, kNever);
  ASSERT_TRUE(compressed.status.ok()) << compressed.status;
  // Of the source: its bytes, order, roles, and what becomes of each tensor. Of
  // the artefact, twice: its manifest, its tensors, its bytes.
  EXPECT_GE(compressed.looks, file.size() / (16 << 10) + 10 * kLooks);
  const Outcome restored = DecompressUntil(compressed.artefact, {}, kNever);
  ASSERT_TRUE(restored.status.ok()) << restored.status;
  EXPECT_EQ(restored.artefact, file);
  EXPECT_GE(restored.looks,
            compressed.artefact.size() / (16 << 10) + 9 * kLooks);
  for (uint64_t stop = 0; stop < compressed.looks; stop += kLooks / 2) {
    const Outcome outcome = CompressUntil(file, options, stop);
    EXPECT_EQ(outcome.status, absl::CancelledError("not wanted")) << stop;
    EXPECT_EQ(outcome.looks, stop + 1);
  }
  for (uint64_t stop = 0; stop < restored.looks; stop += kLooks / 2) {
    const Outcome outcome = DecompressUntil(compressed.artefact, {}, stop);
    EXPECT_EQ(outcome.status, absl::CancelledError("not wanted")) << stop;
    EXPECT_EQ(outcome.looks, stop + 1);
  }
}

TEST(CheckpointTest, ATableOfManyTensorsWasOneStep) {
  const std::vector<TensorSpec> tensors(4096, {.shape = {0}});
  uint64_t looks = 0;
  const CompressLimits limits = {.still_wanted = [&] {
    return looks++ < 3 ? absl::OkStatus() : absl::CancelledError("not wanted");
  }};
  Compressor compressor({.codec = "int8"}, limits);
  CompressOutput output;
  EXPECT_EQ(compressor.DeclareTensors(tensors, {}, &output),
            absl::CancelledError("not wanted"));
  EXPECT_EQ(looks, 4);
}

// The payload of a group whose blocks have `runs` runs of components, of which
// no symbol is read.
std::string PayloadOfBlocks(uint64_t tokens, uint16_t runs) {
  std::string payload;
  profile::WriteGroupHeader({}, &payload);
  for (uint64_t t = 0; t < tokens; t += kMaxBlockTokens) {
    profile::WriteGroupBlockHeader(
        {.size = profile::kGroupBlockHeaderSize + profile::kStatesSize,
         .runs = runs},
        &payload);
    const uint32_t state = kernels::kRansLowest;
    for (size_t lane = 0; lane < coding::kMaxLanes; ++lane) {
      payload.append(reinterpret_cast<const char*>(&state), sizeof(state));
    }
  }
  return payload;
}

// A block of no runs took as many steps as there are components and tokens.
TEST(CheckpointTest, BlocksOfAGroupWithoutRunsTakeNoSteps) {
  const std::shared_ptr<const Profile> profile = TestProfile();
  const profile::GroupShape shape = {
      .batches = 1, .tokens = 1 << 20, .dtypes = {4, DType::kBF16}};
  // What is prepared of a profile is kept.
  const profile::GroupShape one = {
      .batches = 1, .tokens = 1, .dtypes = shape.dtypes};
  ASSERT_TRUE(profile::GroupQuanta::Parse(PayloadOfBlocks(1, 0), profile, 0,
                                          one, /*checkpoint=*/nullptr)
                  .ok());
  uint64_t looks = 0;
  Checkpoint checkpoint([&] {
    ++looks;
    return absl::OkStatus();
  });
  const auto quanta = profile::GroupQuanta::Parse(
      PayloadOfBlocks(shape.tokens, 0), profile, 0, shape, &checkpoint);
  ASSERT_TRUE(quanta.ok()) << quanta.status();
  EXPECT_EQ(looks, 0);
  EXPECT_EQ((*quanta)->components_end(), 0);
  EXPECT_EQ((*quanta)->TokenAt(shape.tokens - 1).size(), 0);
  // What has no components is the means of the profile, all tokens alike.
  profile::MemberRestorer restorer(*quanta, 1);
  const size_t size = restorer.channels() * 2;
  std::string tokens(3 * size, '\0');
  ASSERT_TRUE(
      restorer.Restore(0, 0, 5, 3, reinterpret_cast<uint8_t*>(tokens.data()))
          .ok());
  EXPECT_NE(tokens, std::string(3 * size, '\0'));
  EXPECT_EQ(tokens.substr(0, 2 * size), tokens.substr(size));
}

}  // namespace
}  // namespace kvcompress
