// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Caches in memory of the caller.

#include "kvcompress/memory.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "kvcompress/error.h"
#include "kvcompress/thread_pool.h"
#include "support/safetensors_file.h"

namespace kvcompress {
namespace {

using testing::CompressInChunks;
using testing::MakeFile;
using testing::NamedTensor;
using testing::RandomTensor;

std::vector<NamedTensor> Tensors() {
  return {RandomTensor("layer_0_key", DType::kBF16, {1, 2, 700, 64}),
          RandomTensor("none", DType::kF32, {0, 3}),
          RandomTensor("layer_0_value", DType::kBF16, {1, 2, 700, 64}),
          RandomTensor("layer_1_key", DType::kF16, {1, 2, 9000, 64}),
          RandomTensor("layer_1_value", DType::kF16, {1, 2, 9000, 64})};
}

std::vector<TensorBytes> BytesOf(const std::vector<NamedTensor>& tensors) {
  std::vector<TensorBytes> bytes;
  for (const NamedTensor& tensor : tensors) {
    bytes.push_back({tensor.spec, tensor.bytes});
  }
  return bytes;
}

// Restores to a string for each tensor.
absl::StatusOr<std::map<std::string, std::string>> Restore(
    absl::string_view artefact, DecompressOptions options,
    const Threads& threads) {
  std::map<std::string, std::string> restored;
  const auto report = RestoreTensors(
      artefact, std::move(options), threads,
      [&](const TensorSpec& spec) -> absl::StatusOr<absl::Span<char>> {
        std::string& memory = restored[spec.name];
        memory.resize(*ElementCount(spec) * DTypeSize(spec.dtype), '\xee');
        return absl::MakeSpan(memory);
      });
  if (!report.ok()) return report.status();
  return restored;
}

TEST(Memory, HoldsWhatAFileWould) {
  const std::vector<NamedTensor> tensors = Tensors();
  ThreadPool pool(3);
  for (const char* codec : {"int4", "lossless", "ecsq", "klt"}) {
    for (const unsigned threads : {1u, 2u, 4u}) {
      SCOPED_TRACE(::testing::Message() << codec << " " << threads);
      CompressOptions options;
      options.codec = codec;
      const auto cache =
          CompressTensors(BytesOf(tensors), options, pool.Lend(threads));
      ASSERT_TRUE(cache.ok()) << cache.status();
      EXPECT_EQ(
          cache->artefact,
          CompressInChunks(MakeFile(tensors), options, 1 << 20)->artefact);
      EXPECT_EQ(cache->report.compressed_size, cache->artefact.size());
      const auto restored = Restore(cache->artefact, {}, pool.Lend(threads));
      ASSERT_TRUE(restored.ok()) << restored.status();
      ASSERT_EQ(restored->size(), tensors.size());
      std::vector<NamedTensor> back = tensors;
      for (NamedTensor& tensor : back) {
        tensor.bytes = restored->at(tensor.spec.name);
      }
      EXPECT_EQ(MakeFile(back), *RestoreWhole(cache->artefact));
    }
  }
}

TEST(Memory, TakesWhatIsSelected) {
  const std::vector<NamedTensor> tensors = {
      RandomTensor("layer_0_key", DType::kBF16, {1, 2, 700, 64}),
      RandomTensor("layer_0_value", DType::kBF16, {1, 2, 700, 64})};
  const auto cache =
      CompressTensors(BytesOf(tensors), {.codec = "lossless"}, {});
  ASSERT_TRUE(cache.ok());
  const auto restored = Restore(
      cache->artefact, {.tensors = {"layer_0_value"}, .tokens = {{3, 5}}}, {});
  ASSERT_TRUE(restored.ok()) << restored.status();
  ASSERT_EQ(restored->size(), 1);
  const std::string& source = tensors[1].bytes;
  EXPECT_EQ(restored->at("layer_0_value"),
            source.substr(3 * 128, 256) + source.substr(703 * 128, 256));
}

TEST(Memory, OfAnotherSizeIsRefused) {
  std::vector<NamedTensor> tensors = Tensors();
  const auto cache = CompressTensors(BytesOf(tensors), {}, {});
  ASSERT_TRUE(cache.ok());
  std::string small(100, '\0');
  const auto report =
      RestoreTensors(cache->artefact, {}, {},
                     [&](const TensorSpec&) { return absl::MakeSpan(small); });
  EXPECT_TRUE(absl::IsInvalidArgument(report.status())) << report.status();
  EXPECT_EQ(GetErrorDetail(report.status())->tensor, "layer_0_key");
  EXPECT_EQ(small, std::string(100, '\0'));

  tensors[2].bytes.pop_back();
  const auto refused = CompressTensors(BytesOf(tensors), {}, {});
  EXPECT_EQ(GetErrorDetail(refused.status())->tensor, "layer_0_value");
  CompressOptions options;
  options.reconstruct = true;
  EXPECT_TRUE(absl::IsInvalidArgument(
      CompressTensors(BytesOf(Tensors()), options, {}).status()));
}

TEST(Memory, DamageIsFoundByAnyNumberOfThreads) {
  auto cache = CompressTensors(BytesOf(Tensors()), {.codec = "ecsq"}, {});
  ASSERT_TRUE(cache.ok());
  char& byte = cache->artefact[cache->artefact.size() - 99];
  byte = static_cast<char>(byte ^ 1);
  ThreadPool pool(3);
  for (const unsigned threads : {1u, 4u}) {
    const auto restored = Restore(cache->artefact, {}, pool.Lend(threads));
    EXPECT_TRUE(absl::IsDataLoss(restored.status())) << restored.status();
  }
}

}  // namespace
}  // namespace kvcompress
