// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Several threads work on one cache: what they make does not show it.

#include "kvcompress/threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kvcompress/compressor.h"
#include "kvcompress/decompressor.h"
#include "kvcompress/error.h"
#include "support/lent_threads.h"
#include "support/safetensors_file.h"

namespace kvcompress {
namespace {

using testing::Compressed;
using testing::CompressWith;
using testing::DecompressFile;
using testing::kEnough;
using testing::Lent;
using testing::MakeFile;
using testing::NamedTensor;
using testing::RandomTensor;
using testing::RestoreWith;

// Layers of keys and values, with tensors of other kinds between them.
std::string LayersOfACache() {
  std::vector<NamedTensor> tensors;
  for (int layer = 0; layer < 6; ++layer) {
    const uint64_t tokens = 40 + 60 * (layer % 3);
    for (const char* role : {"key", "value"}) {
      tensors.push_back(RandomTensor(absl::StrCat("layer_", layer, "_", role),
                                     DType::kBF16, {1, 2, tokens, 64}));
    }
    tensors.push_back(
        RandomTensor(absl::StrCat("empty_", layer), DType::kF32, {0, 4}));
    tensors.push_back(
        RandomTensor(absl::StrCat("odd_", layer), DType::kF16, {4097}));
  }
  return MakeFile(tensors);
}

TEST(ThreadsTest, GiveTheSameBytesAndFigures) {
  Lent lent(3);
  const std::string file = LayersOfACache();
  for (const char* codec : {"int4", "ecsq:contract", "klt:ultra", "auto",
                            "lossless", "int8+zstd", "sparse"}) {
    SCOPED_TRACE(codec);
    const CompressOptions options = {.codec = codec, .reconstruct = true};
    const auto alone = CompressWith(file, options, {}, file.size());
    ASSERT_TRUE(alone.ok()) << alone.status();
    const auto restored = DecompressFile(alone->artefact);
    ASSERT_TRUE(restored.ok()) << restored.status();
    for (const unsigned count : {2u, 4u, 64u}) {
      for (const size_t chunk : {size_t{5000}, file.size()}) {
        const auto many = CompressWith(file, options, lent.Give(count), chunk);
        ASSERT_TRUE(many.ok()) << many.status();
        EXPECT_EQ(many->artefact, alone->artefact);
        EXPECT_EQ(many->reconstructed, alone->reconstructed);
        EXPECT_EQ(many->report.metrics.rmse, alone->report.metrics.rmse);
        EXPECT_EQ(many->report.worst_tensor, alone->report.worst_tensor);
        const auto back =
            RestoreWith(alone->artefact, {}, lent.Give(count), chunk,
                        /*most=*/70000);
        ASSERT_TRUE(back.ok()) << back.status();
        EXPECT_EQ(*back, *restored);
      }
    }
  }
}

TEST(ThreadsTest, GiveBackWhatIsSelected) {
  Lent lent(2);
  const std::string artefact =
      CompressWith(LayersOfACache(), {.codec = "klt"}, {}, 1 << 20)->artefact;
  DecompressOptions some;
  some.tensors = {"layer_[135]_*"};
  DecompressOptions tokens = some;
  tokens.tokens = {7, 30};
  DecompressOptions none;
  none.verify_only = true;
  for (const DecompressOptions& options : {some, tokens, none}) {
    EXPECT_EQ(*RestoreWith(artefact, options, lent.Give(3), 4000, 9000),
              *DecompressFile(artefact, options));
  }
}

TEST(ThreadsTest, ViewsOfALayoutToo) {
  Lent lent(2);
  const std::string file =
      MakeFile({RandomTensor("kv", DType::kBF16, {2, 3, 70, 2 * 64}),
                RandomTensor("more", DType::kBF16, {2, 3, 70, 2 * 64})});
  for (const bool reconstruct : {false, true}) {
    const CompressOptions options = {.codec = "klt:high",
                                     .reconstruct = reconstruct,
                                     .layout = "2lt(hd):h=2"};
    const auto alone = CompressWith(file, options, {}, 1 << 20);
    ASSERT_TRUE(alone.ok()) << alone.status();
    const auto many = CompressWith(file, options, lent.Give(3), 3000);
    ASSERT_TRUE(many.ok()) << many.status();
    EXPECT_EQ(many->artefact, alone->artefact);
    EXPECT_EQ(many->reconstructed, alone->reconstructed);
    EXPECT_EQ(*RestoreWith(alone->artefact, {}, lent.Give(3), 3000, 9000),
              *DecompressFile(alone->artefact));
  }
}

TEST(ThreadsTest, NobodyNeedHelp) {
  const std::string file = LayersOfACache();
  const Compressed alone = *CompressWith(file, {.codec = "klt"}, {}, 1 << 20);
  const Threads forgetful = {
      .count = 4, .run = [](const auto&) {}, .memory = kEnough};
  const Threads out_of_memory = {
      .count = 4,
      .run = [](const auto&) { throw std::bad_alloc(); },
      .memory = kEnough};
  for (const Threads& threads : {forgetful, out_of_memory}) {
    EXPECT_EQ(CompressWith(file, {.codec = "klt"}, threads, 1 << 20)->artefact,
              alone.artefact);
    EXPECT_EQ(*RestoreWith(alone.artefact, {}, threads, 1 << 20, 1 << 20),
              *DecompressFile(alone.artefact));
  }
}

TEST(ThreadsTest, DamageIsFoundAsByOne) {
  Lent lent(3);
  std::string artefact =
      CompressWith(LayersOfACache(), {.codec = "ecsq"}, {}, 1 << 20)->artefact;
  for (size_t i = artefact.size() / 3; i < artefact.size(); i += 3001) {
    artefact[i] ^= 0x20;
    const absl::Status one = DecompressFile(artefact).status();
    const absl::Status many =
        RestoreWith(artefact, {}, lent.Give(4), 1 << 20, 1 << 20).status();
    EXPECT_EQ(many, one) << i;
    EXPECT_EQ(many.code(), absl::StatusCode::kDataLoss);
    artefact[i] ^= 0x20;
  }
  const std::string cut = artefact.substr(0, artefact.size() - 100);
  EXPECT_EQ(RestoreWith(cut, {}, lent.Give(4), 1 << 20, 1 << 20).status(),
            DecompressFile(cut).status());
  EXPECT_EQ(
      RestoreWith(artefact + "x", {}, lent.Give(4), 1 << 20, 1 << 20).status(),
      DecompressFile(artefact + "x").status());
}

TEST(ThreadsTest, WhatNobodyWantsEndsSoon) {
  Lent lent(3);
  const std::string file = LayersOfACache();
  for (const int most : {0, 5, 50, 500}) {
    std::atomic<int> looks{0};
    CompressLimits limits;
    limits.threads = lent.Give(4);
    limits.still_wanted = [&] {
      return looks++ < most ? absl::OkStatus()
                            : absl::CancelledError("not wanted");
    };
    Compressor compressor({.codec = "auto"}, limits);
    CompressOutput output;
    const absl::Status status = compressor.Append(file, &output);
    EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status;
    EXPECT_EQ(status.message(), "not wanted");
  }
  // And what is given up while others work on it.
  Compressor compressor({.codec = "auto"}, {.threads = lent.Give(4)});
  CompressOutput output;
  EXPECT_TRUE(
      compressor.Append(absl::string_view(file).substr(0, 200000), &output)
          .ok());
}

TEST(ThreadsTest, AsManyAsThereIsMemoryFor) {
  const std::string file = LayersOfACache();
  const auto begun = [&](const char* codec, uint64_t memory) {
    return testing::BegunWith(file, {.codec = codec}, memory);
  };
  for (const char* codec : {"lossless", "klt"}) {
    SCOPED_TRACE(codec);
    const auto one = begun(codec, 0);
    EXPECT_EQ(one->threads(), 1);
    const auto all = begun(codec, kEnough);
    EXPECT_EQ(all->threads(), 16);
    const uint64_t more = all->working_bytes() - one->working_bytes();
    const auto half = begun(codec, more / 2);
    // Where blocks are shared, fewer tensors do for as many threads.
    const bool shares = ParseCodec(codec)->codec->shares_blocks();
    EXPECT_GT(half->threads(), shares ? 15 : 4);
    EXPECT_LT(half->threads(), shares ? 17 : 12);
    EXPECT_LE(half->working_bytes() - one->working_bytes(), more / 2);
    half->UseOneThread();
    EXPECT_EQ(half->working_bytes(), one->working_bytes());
  }
}

// What is as fast as memory gains where tensors are in a processor's caches,
// and large enough to be handed over.
TEST(ThreadsTest, EncodeAtTheSpeedOfMemoryWhatPays) {
  Lent lent(2);
  struct Case {
    uint64_t tokens;
    unsigned threads;
  };
  for (const auto& [tokens, threads] :
       {Case{1000, 1}, Case{4500, 3}, Case{40000, 1}}) {
    std::vector<NamedTensor> tensors;
    for (const char* name : {"a", "b", "c"}) {
      tensors.push_back(RandomTensor(name, DType::kBF16, {1, 1, tokens, 64}));
    }
    const std::string file = MakeFile(tensors);
    Compressor compressor({.codec = "int4"}, {.threads = lent.Give(3)});
    CompressOutput output;
    ASSERT_TRUE(compressor.Append(file, &output).ok());
    EXPECT_EQ(compressor.threads(), threads) << tokens;
    ASSERT_TRUE(compressor.Finish().ok());
    EXPECT_EQ(compressor.header() + output.artefact,
              CompressWith(file, {.codec = "int4"}, {}, 5000)->artefact);
  }
}

}  // namespace
}  // namespace kvcompress
