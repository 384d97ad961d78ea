// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Several threads share the work of a group of a profile: what they make does
// not show it.

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kvcompress/compressor.h"
#include "kvcompress/decompressor.h"
#include "profile/trained.h"
#include "support/lent_threads.h"
#include "support/safetensors_file.h"

namespace kvcompress {
namespace {

using testing::CacheOf;
using testing::CompressWith;
using testing::kEnough;
using testing::Lent;
using testing::MakeFile;
using testing::NamedTensor;
using testing::RandomBytes;
using testing::Witness;

constexpr size_t kSharedTokens = 560;  // three blocks

// Two batches of tensors that share signals, and another tensor.
std::string TwoBatches() {
  std::vector<NamedTensor> tensors = CacheOf(kSharedTokens, 5);
  const std::vector<NamedTensor> second = CacheOf(kSharedTokens, 6);
  for (size_t i = 0; i < tensors.size(); ++i) {
    tensors[i].spec.shape[0] = 2;
    tensors[i].bytes += second[i].bytes;
  }
  const TensorSpec other = {
      .name = "other", .dtype = DType::kBF16, .shape = {1, 2, 1100, 64}};
  tensors.push_back({other, RandomBytes(other.dtype, 2 * 1100 * 64, 3)});
  return MakeFile(tensors);
}

// How it is compressed with a profile.
struct Way {
  std::string codec;
  Effort effort = Effort::kBalanced;
  size_t with_profile = 8;  // tensors

  CompressOptions Options(bool reconstruct = false) const {
    static const auto* const presets = new std::string(testing::TrainedProfile(
        2, /*contract=*/false, {{"high", 0.125f, {}}, {"max", 1, {}}}));
    static const auto* const contract =
        new std::string(testing::TrainedProfile(2, /*contract=*/true));
    const bool bounds = codec == "auto" || codec == "klt:contract";
    CompressOptions options;
    options.codec = codec;
    options.effort = effort;
    options.reconstruct = reconstruct;
    // Anew: what is prepared of a profile is kept with it.
    options.profile = *Profile::Parse(bounds ? *contract : *presets);
    return options;
  }
};

std::vector<Way> AllWays() {
  return {{.codec = "klt:max"},
          {.codec = "klt:high", .effort = Effort::kBest},  // has a trellis
          {.codec = "klt:contract"},
          // Does without the profile where that is smaller: in one group.
          {.codec = "auto", .with_profile = 4}};
}

TEST(SharedGroups, AreTheSameByAnyNumber) {
  Lent lent(7);
  const std::string file = TwoBatches();
  for (const Way& way : AllWays()) {
    const CompressOptions options = way.Options(/*reconstruct=*/true);
    const auto alone = CompressWith(file, options, {}, file.size());
    ASSERT_TRUE(alone.ok()) << alone.status();
    ASSERT_TRUE(alone->report.profile.has_value());
    EXPECT_EQ(alone->report.profile->tensors, way.with_profile);
    DecompressOptions knowing;
    knowing.profiles = {options.profile};
    const auto restored = testing::DecompressFile(alone->artefact, knowing);
    ASSERT_TRUE(restored.ok()) << restored.status();
    EXPECT_EQ(*restored, alone->reconstructed);
    for (const unsigned count : {2u, 3u, 8u}) {
      SCOPED_TRACE(absl::StrCat(way.codec, " by ", count));
      const auto many =
          CompressWith(file, options, lent.Give(count), file.size());
      ASSERT_TRUE(many.ok()) << many.status();
      EXPECT_EQ(many->artefact, alone->artefact);
      EXPECT_EQ(many->reconstructed, alone->reconstructed);
      EXPECT_EQ(many->report.worst_tensor, alone->report.worst_tensor);
      ASSERT_EQ(many->report.tensors.size(), alone->report.tensors.size());
      for (size_t i = 0; i < many->report.tensors.size(); ++i) {
        const TensorReport& report = many->report.tensors[i];
        const TensorReport& same = alone->report.tensors[i];
        EXPECT_EQ(report.codec, same.codec);
        EXPECT_EQ(report.profile_group, same.profile_group);
        EXPECT_EQ(report.metrics.rmse, same.metrics.rmse);
        EXPECT_EQ(report.metrics.token_snr_db_p1, same.metrics.token_snr_db_p1);
      }
      const auto in_chunks =
          CompressWith(file, way.Options(), lent.Give(count), 5000);
      ASSERT_TRUE(in_chunks.ok()) << in_chunks.status();
      EXPECT_EQ(in_chunks->artefact, alone->artefact);
    }
  }
}

TEST(SharedGroups, SeveralThreadsWorkOnOne) {
  const std::string file = TwoBatches();
  for (const Way& way : AllWays()) {
    SCOPED_TRACE(way.codec);
    Witness witness;
    Lent lent(2);
    Compressor compressor(way.Options(),
                          {.still_wanted = [&] { return witness.Look(); },
                           .threads = witness.Give(&lent, 3)});
    CompressOutput output;
    ASSERT_TRUE(compressor.Append(file, &output).ok());
    EXPECT_EQ(compressor.threads(), 3);
    ASSERT_TRUE(compressor.Finish().ok());
    EXPECT_GT(witness.seen(), 1);
  }
}

// What the cache of other tests becomes, with a profile that it needs.
struct Artefact {
  std::string bytes;
  DecompressOptions knowing;
};

Artefact OfTwoBatches() {
  const CompressOptions options = Way{.codec = "klt:high"}.Options();
  const std::string file = TwoBatches();
  Artefact artefact;
  artefact.bytes = CompressWith(file, options, {}, file.size())->artefact;
  artefact.knowing.profiles = {options.profile};
  return artefact;
}

TEST(SharedGroups, AreRestoredTheSameByAnyNumber) {
  Lent lent(7);
  const Artefact artefact = OfTwoBatches();
  DecompressOptions some = artefact.knowing;
  some.tensors = {"layer_1_*"};
  some.tokens = {5, 300};
  DecompressOptions none = artefact.knowing;
  none.verify_only = true;
  DecompressOptions layers = artefact.knowing;
  layers.order = TensorOrder::kLayers;
  for (const DecompressOptions& options :
       {artefact.knowing, some, none, layers}) {
    const auto alone = testing::DecompressFile(artefact.bytes, options);
    ASSERT_TRUE(alone.ok()) << alone.status();
    for (const unsigned count : {2u, 3u, 8u}) {
      const auto many = testing::RestoreWith(artefact.bytes, options,
                                             lent.Give(count), 3000, 9000);
      ASSERT_TRUE(many.ok()) << many.status();
      EXPECT_EQ(*many, *alone);
    }
  }
}

TEST(SharedGroups, SeveralThreadsRestoreOne) {
  const Artefact artefact = OfTwoBatches();
  Witness witness;
  Lent lent(2);
  Decompressor decompressor(artefact.knowing,
                            {.still_wanted = [&] { return witness.Look(); },
                             .threads = witness.Give(&lent, 3)});
  absl::string_view left = artefact.bytes;
  std::string restored;
  for (bool more = true; more;) {
    const auto step = decompressor.Restore(&left, SIZE_MAX, &restored);
    ASSERT_TRUE(step.ok()) << step.status();
    more = *step;
  }
  EXPECT_EQ(decompressor.threads(), 3);
  EXPECT_TRUE(decompressor.Finish().ok());
  EXPECT_GT(witness.seen(), 1);
}

// By all of them with the message of one.
TEST(SharedGroups, DamageIsFoundByAnyNumber) {
  Lent lent(3);
  const Artefact artefact = OfTwoBatches();
  DecompressOptions others = artefact.knowing;
  others.tensors = {"other"};
  const size_t size = artefact.bytes.size();
  for (size_t at = size / 3; at < size; at += size / 17) {
    std::string damaged = artefact.bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    const absl::Status alone =
        testing::DecompressFile(damaged, artefact.knowing).status();
    EXPECT_EQ(alone.code(), absl::StatusCode::kDataLoss) << at;
    EXPECT_EQ(testing::RestoreWith(damaged, artefact.knowing, lent.Give(3),
                                   size, SIZE_MAX)
                  .status(),
              alone)
        << at;
    // By its digest where nothing of the group is needed.
    EXPECT_EQ(testing::DecompressFile(damaged, others).status().code(),
              absl::StatusCode::kDataLoss);
  }
}

TEST(SharedGroups, WhatNobodyWantsEndsSoon) {
  constexpr unsigned kThreads = 4;
  Lent lent(kThreads - 1);
  const std::string file = TwoBatches();
  for (const Way& way : AllWays()) {
    // Returns how often it was asked whether the result is wanted, which it was
    // so many times.
    const auto looks_until = [&](int last, const Threads& threads,
                                 absl::Status* status) {
      std::atomic<int> looks{0};
      CompressLimits limits;
      limits.threads = threads;
      limits.still_wanted = [&] {
        return looks++ < last ? absl::OkStatus()
                              : absl::CancelledError("not wanted");
      };
      Compressor compressor(way.Options(), limits);
      CompressOutput output;
      *status = compressor.Append(file, &output);
      return looks.load();
    };
    absl::Status status;
    const int all = looks_until(1 << 30, {}, &status);
    ASSERT_TRUE(status.ok()) << status;
    for (int eighth = 0; eighth < 8; ++eighth) {
      const int last = all * eighth / 8;
      SCOPED_TRACE(absl::StrCat(way.codec, " ", last, " of ", all));
      const int looks = looks_until(last, lent.Give(kThreads), &status);
      EXPECT_EQ(status, absl::CancelledError("not wanted"));
      // Each thread was notified once, and that was the end.
      EXPECT_GT(looks, last);
      EXPECT_LE(looks, last + static_cast<int>(kThreads));
    }
  }
}

TEST(SharedGroups, AsManyWorkAsThereIsMemoryFor) {
  const std::string file = TwoBatches();
  for (const Way& way : AllWays()) {
    SCOPED_TRACE(way.codec);
    const auto begun = [&](uint64_t memory) {
      return testing::BegunWith(file, way.Options(), memory);
    };
    const auto one = begun(0);
    EXPECT_EQ(one->threads(), 1);
    const auto all = begun(kEnough);
    EXPECT_EQ(all->threads(), 16);
    const uint64_t more = all->working_bytes() - one->working_bytes();
    const auto half = begun(more / 2);
    EXPECT_GT(half->threads(), 6);
    EXPECT_LT(half->threads(), 10);
    EXPECT_GT(half->working_bytes(), one->working_bytes());
    EXPECT_LE(half->working_bytes() - one->working_bytes(), more / 2);
    half->UseOneThread();
    EXPECT_EQ(half->working_bytes(), one->working_bytes());
  }
}

}  // namespace
}  // namespace kvcompress
