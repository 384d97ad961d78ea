// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// A decompressor restores in steps that are bounded, whatever is selected and
// however far the artefact expands; and the steps do not matter.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "kvcompress/compressor.h"
#include "kvcompress/decompressor.h"
#include "kvcompress/error.h"
#include "kvcompress/safetensors.h"
#include "support/safetensors_file.h"

namespace kvcompress::restore_steps {
namespace {

// A header that is longer than some steps, tensors of zeros, one without
// elements between them and one at the end.
std::string File() {
  SafetensorsHeader header;
  header.metadata.emplace_back("note", std::string(3000, 'n'));
  const std::vector<std::vector<uint64_t>> shapes = {
      {1, 2, 1500, 64}, {1, 2, 0, 64}, {1, 2, 1500, 64}, {1, 2, 0, 64}};
  for (size_t i = 0; i < shapes.size(); ++i) {
    SafetensorsEntry entry;
    entry.spec = {.name = "layer_" + std::to_string(i / 2) +
                          (i % 2 == 0 ? "_key" : "_value"),
                  .dtype = DType::kBF16,
                  .shape = shapes[i]};
    entry.begin = header.data_size;
    header.data_size += 2 * *ElementCount(entry.spec);
    entry.end = header.data_size;
    header.tensors.push_back(entry);
  }
  return SerializeSafetensorsHeader(header) +
         std::string(header.data_size, '\0');
}

struct Outcome {
  std::string restored;
  size_t largest = 0;  // output of a step
  size_t steps = 0;
  size_t most_held = 0;  // working_bytes, after a step
};

Outcome Restore(absl::string_view artefact, const DecompressOptions& options,
                size_t chunk, size_t most) {
  Decompressor decompressor(options, {});
  Outcome outcome;
  std::string output;
  while (!artefact.empty()) {
    absl::string_view part = artefact.substr(0, chunk);
    artefact.remove_prefix(part.size());
    for (bool more = true; more; output.clear()) {
      const absl::StatusOr<bool> step =
          decompressor.Restore(&part, most, &output);
      EXPECT_TRUE(step.ok()) << step.status();
      if (!step.ok()) return outcome;
      more = *step;
      ++outcome.steps;
      outcome.largest = std::max(outcome.largest, output.size());
      outcome.most_held =
          std::max<size_t>(outcome.most_held, decompressor.working_bytes());
      outcome.restored += output;
    }
    EXPECT_TRUE(part.empty());
  }
  const absl::StatusOr<DecompressReport> report = decompressor.Finish();
  EXPECT_TRUE(report.ok()) << report.status();
  if (report.ok()) {
    EXPECT_EQ(report->output_size, outcome.restored.size());
  }
  return outcome;
}

std::string Artefact(const char* codec, const char* stage) {
  CompressOptions options;
  options.codec = CodecString(codec, "", stage);
  const auto compressed = testing::CompressFile(File(), options);
  EXPECT_TRUE(compressed.ok()) << compressed.status();
  return compressed->artefact;
}

std::vector<DecompressOptions> Selections() {
  return {{},
          {.verify_only = true},
          {.tensors = {"layer_1_*"}},
          {.tensors = {"*key"}, .tokens = {{1490, 1500}}},
          {.tensors = {"*key"}, .tokens = {{0, 1499}}},
          {.order = TensorOrder::kLayers}};
}

TEST(RestoreSteps, GiveTheSameFileAndNoMoreThanAsked) {
  for (const char* codec : {"int4", "sparse", "lossless", "ecsq", "klt"}) {
    for (const char* stage : {"", "zstd"}) {
      const std::string artefact = Artefact(codec, stage);
      for (const DecompressOptions& options : Selections()) {
        const Outcome whole =
            Restore(artefact, options, artefact.size(), SIZE_MAX);
        for (const size_t most : {1000, 64 << 10, 1 << 20}) {
          for (const size_t chunk : {size_t{100}, artefact.size()}) {
            const Outcome steps = Restore(artefact, options, chunk, most);
            EXPECT_TRUE(steps.restored == whole.restored) << codec;
            EXPECT_LE(steps.largest, std::max<size_t>(most, kMaxDecodedBlock));
            // Blocks here are of 192,000 bytes at most.
            EXPECT_LE(steps.largest, std::max<size_t>(most, 192000)) << codec;
          }
        }
      }
    }
  }
}

// A step that returns nothing is not the whole of an artefact.
TEST(RestoreSteps, AreManyAlsoWhereNothingIsGivenBack) {
  for (const char* codec : {"ecsq", "klt", "lossless", "sparse"}) {
    const std::string artefact = Artefact(codec, "zstd");
    const Outcome verified =
        Restore(artefact, {.verify_only = true}, artefact.size(), 100000);
    EXPECT_TRUE(verified.restored.empty());
    EXPECT_GE(verified.steps, 4) << codec;
  }
}

// What is reserved follows from the header, before anything is decoded: nothing
// is held before, and a stream that was let in is not turned away later.
TEST(RestoreSteps, NeedNoMoreMemoryThanTheHeaderSays) {
  for (const char* codec : {"int4", "lossless", "ecsq", "klt"}) {
    const std::string artefact = Artefact(codec, "lz4");
    for (const DecompressOptions& options : Selections()) {
      Decompressor decompressor(options, {});
      absl::string_view left = artefact;
      std::string restored;
      const auto more = decompressor.Restore(&left, SIZE_MAX, &restored);
      ASSERT_TRUE(more.ok()) << more.status();
      EXPECT_TRUE(*more);
      EXPECT_TRUE(restored.empty());
      EXPECT_FALSE(left.empty());
      EXPECT_EQ(decompressor.working_bytes(),
                Restore(artefact, options, 1000, 1000).most_held);
    }
  }
}

TEST(RestoreSteps, DoNotMatterToWhatIsDamaged) {
  for (const char* codec : {"int4", "ecsq", "klt"}) {
    std::string artefact = Artefact(codec, "lz4");
    artefact.back() ^= 1;
    for (const size_t most : {size_t{1000}, size_t{SIZE_MAX}}) {
      const auto restored =
          testing::DecompressFile(artefact, {}, 1000, nullptr, most);
      ASSERT_EQ(restored.status().code(), absl::StatusCode::kDataLoss);
      EXPECT_EQ(GetErrorDetail(restored.status())->reason, "PAYLOAD_DAMAGED");
    }
    artefact.pop_back();
    const auto cut = testing::DecompressFile(artefact, {}, 1000, nullptr, 1000);
    EXPECT_EQ(GetErrorDetail(cut.status())->reason, "TRUNCATED");
    const auto longer = testing::DecompressFile(Artefact(codec, "lz4") + "x",
                                                {}, 1000, nullptr, 1000);
    EXPECT_EQ(GetErrorDetail(longer.status())->reason, "TRAILING_BYTES");
  }
}

}  // namespace
}  // namespace kvcompress::restore_steps
