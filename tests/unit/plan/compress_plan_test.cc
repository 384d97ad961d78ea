// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "plan/compress_plan.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>

#include "kvcompress/error.h"
#include "support/safetensors_file.h"

namespace kvcompress {
namespace {

using testing::MakeFile;
using testing::RandomTensor;

constexpr uint64_t kPlanTokens = 200;

std::string PlannedCache(
    std::vector<std::pair<std::string, std::string>> metadata = {}) {
  return MakeFile(
      {RandomTensor("block_table", DType::kI16, {40}),
       RandomTensor("layer_0_key", DType::kBF16, {1, 2, kPlanTokens, 64}),
       RandomTensor("layer_0_value", DType::kBF16, {1, 2, kPlanTokens, 64})},
      std::move(metadata));
}

uint64_t HeaderBytesOf(const std::string& file) {
  uint64_t length;
  std::memcpy(&length, file.data(), sizeof(length));
  return sizeof(length) + length;
}

absl::StatusOr<CompressPlan> PlanFor(const std::string& file,
                                     const CompressOptions& options,
                                     CompressReport* report) {
  const uint64_t begin = HeaderBytesOf(file);
  absl::StatusOr<SafetensorsHeader> header = ParseSafetensorsHeader(
      absl::string_view(file).substr(8, begin - 8), /*checkpoint=*/nullptr);
  EXPECT_TRUE(header.ok()) << header.status();
  return CompressPlan::Make(options, CompressLimits(),
                            *ParseCodec(options.codec),
                            {*std::move(header), begin},
                            /*checkpoint=*/nullptr, report);
}

std::string PlanErrorOf(const absl::Status& status) {
  const auto detail = GetErrorDetail(status);
  return detail ? detail->reason : "";
}

TEST(CompressPlan, KnowsCodecsRolesAndSizesFromTheHeader) {
  CompressOptions options;
  options.codec = "klt:high";
  CompressReport report;
  const auto plan = PlanFor(PlannedCache(), options, &report);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->artefact.tensors.size(), 3);
  EXPECT_EQ(plan->artefact.tensors[0].codec.ToString(), "lossless");
  EXPECT_EQ(plan->artefact.tensors[1].codec.ToString(), "klt:high");
  EXPECT_EQ(plan->artefact.tensors[1].spec.role, TensorRole::kKey);
  EXPECT_EQ(plan->artefact.tensors[2].spec.role, TensorRole::kValue);
  EXPECT_FALSE(plan->groups.any());
  // klt holds the largest tensor.
  EXPECT_GE(plan->tensor_memory, 2 * kPlanTokens * 64 * 2);
  EXPECT_EQ(report.original_size, 80 + 2 * 2 * kPlanTokens * 64 * 2);
  EXPECT_EQ(report.codec, "klt:high");
}

TEST(CompressPlan, ReservesTheHeaderThatTheArtefactHas) {
  for (const char* codec : {"int4", "lossless", "klt:high", "auto"}) {
    CompressOptions options;
    options.codec = codec;
    const std::string file = PlannedCache({{"layout", "bhtd"}});
    CompressReport report;
    const auto plan = PlanFor(file, options, &report);
    const auto compressed = testing::CompressFile(file, options);
    ASSERT_TRUE(plan.ok() && compressed.ok()) << codec;
    EXPECT_EQ(plan->reserved_size, HeaderBytesOf(compressed->artefact))
        << codec;
  }
}

TEST(CompressPlan, HasTheHeaderOfTheSourceWhereItIsRestored) {
  CompressOptions options;
  options.codec = "int8";
  CompressReport report;
  EXPECT_EQ(PlanFor(PlannedCache(), options, &report)->source_header, "");
  options.reconstruct = true;
  const std::string file = PlannedCache();
  EXPECT_EQ(PlanFor(file, options, &report)->source_header,
            file.substr(0, HeaderBytesOf(file)));
}

TEST(CompressPlan, RefusesWhatIsCompressedAlready) {
  CompressOptions options;
  options.codec = "int8";
  CompressReport report;
  const auto plan =
      PlanFor(PlannedCache({{"kvcompress.version", "1"}}), options, &report);
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(PlanErrorOf(plan.status()), "ALREADY_COMPRESSED");
}

}  // namespace
}  // namespace kvcompress
