// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "kvcompress/checkpoint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "kvcompress/codec.h"
#include "kvcompress/compressor.h"
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

// Compresses; from the look number `last` on, the result is not wanted.
Outcome CompressUntil(const std::string& file, const CompressOptions& options,
                      uint64_t last) {
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

std::vector<CompressOptions> AllChoices() {
  std::vector<CompressOptions> all;
  for (const Codec* codec : AllCodecs()) {
    const std::vector<std::string> choices = codec->SelfTestParameters();
    for (const std::string& parameters : choices) {
      const auto string = [&](absl::string_view compressor) {
        return CodecString(codec->traits().name, parameters, compressor);
      };
      CompressOptions options;
      options.codec = string("");
      options.thresholds.min_snr_db = 3;
      all.push_back(options);
      if (!codec->traits().presets.empty() && parameters != choices[0]) {
        continue;
      }
      options.codec = string("zstd");
      all.push_back(options);
      if (codec->traits().streaming) continue;
      options.codec = string("");
      options.effort = Effort::kBest;
      all.push_back(options);
    }
  }
  return all;
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

TEST(CheckpointTest, EveryCodecLooksOftenAndGivesTheSameBytes) {
  const std::string file = TwoTensors();
  for (const CompressOptions& options : AllChoices()) {
    const Outcome outcome = CompressUntil(file, options, kNever);
    ASSERT_TRUE(outcome.status.ok()) << outcome.status;
    EXPECT_GE(outcome.looks, file.size() >> 16) << options.codec;
    EXPECT_EQ(outcome.artefact, CompressFile(file, options)->artefact);
  }
}

// Wherever it stops: at once, with the error that it was told.
TEST(CheckpointTest, WorkEndsWhereItIsNotWanted) {
  const std::string file = TwoTensors();
  for (const CompressOptions& options : AllChoices()) {
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

}  // namespace
}  // namespace kvcompress
