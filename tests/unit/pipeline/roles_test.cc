// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Roles by patterns, their number in reports, and the warning when there is
// none.

#include "kvcompress/roles.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kvcompress/error.h"
#include "support/safetensors_file.h"

namespace kvcompress {
namespace {

using testing::CompressFile;
using testing::MakeFile;
using testing::NamedTensor;
using testing::RandomBytes;

struct Assigned {
  TensorRole role;
  std::optional<uint32_t> layer;

  bool operator==(const Assigned&) const = default;
};

absl::StatusOr<std::vector<Assigned>> Assign(
    const RolePatterns& patterns, const std::vector<std::string>& names) {
  std::vector<TensorSpec> specs;
  for (const std::string& name : names) specs.push_back({.name = name});
  std::vector<TensorSpec*> pointers;
  for (TensorSpec& spec : specs) pointers.push_back(&spec);
  const absl::Status status = AssignRoles(patterns, pointers);
  if (!status.ok()) return status;
  std::vector<Assigned> result;
  for (const TensorSpec& spec : specs)
    result.push_back({spec.role, spec.layer});
  return result;
}

std::string CacheOf(const std::vector<std::string>& names,
                    DType dtype = DType::kF32) {
  std::vector<NamedTensor> tensors;
  for (const std::string& name : names) {
    tensors.push_back({{.name = name, .dtype = dtype, .shape = {1, 2, 16, 32}},
                       RandomBytes(dtype, 1024, 11)});
  }
  return MakeFile(tensors);
}

std::string ReasonOf(const absl::Status& status) {
  const auto detail = GetErrorDetail(status);
  return detail ? detail->reason : "";
}

TEST(RolePatterns, GiveRoleAndLayer) {
  const auto roles = Assign({.keys = {"*.k", "first"}, .values = {"*.v"}},
                            {"blocks.3.k", "blocks.3.v", "r1.block12.k",
                             "first", "0123456789.v", "12.else"});
  ASSERT_TRUE(roles.ok()) << roles.status();
  EXPECT_THAT(*roles, ::testing::ElementsAre(
                          Assigned{TensorRole::kKey, 3},
                          Assigned{TensorRole::kValue, 3},
                          Assigned{TensorRole::kKey, std::nullopt},
                          Assigned{TensorRole::kKey, std::nullopt},
                          Assigned{TensorRole::kValue, std::nullopt},
                          Assigned{TensorRole::kNone, std::nullopt}));
}

TEST(RolePatterns, GoBeforeNamesAndAfterDeclarations) {
  const auto roles =
      Assign({.keys = {"v*.layers.7.*"}, .values = {"layer_*"}},
             {"layer_1_key", "layer_2_value", "v2.layers.7.self_attn.v_cache"});
  ASSERT_TRUE(roles.ok()) << roles.status();
  EXPECT_THAT(*roles, ::testing::ElementsAre(Assigned{TensorRole::kValue, 1},
                                             Assigned{TensorRole::kValue, 2},
                                             Assigned{TensorRole::kKey, 7}));
  TensorSpec declared{.name = "x5", .role = TensorRole::kKey, .layer = 9};
  TensorSpec* const pointer = &declared;
  ASSERT_TRUE(AssignRoles({.values = {"x*"}}, {&pointer, 1}).ok());
  EXPECT_EQ(declared.role, TensorRole::kKey);
  EXPECT_EQ(declared.layer, 9);
}

TEST(RolePatterns, ThatMatchNothingAreRefused) {
  const absl::Status status =
      Assign({.values = {"*", "no*"}}, {"a", "b"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "none of 2 tensors has a name that \"no*\" matches");
  EXPECT_EQ(ReasonOf(status), "ROLE_PATTERN_MATCHES_NOTHING");
  EXPECT_EQ(GetErrorDetail(status)->field, "options.value_patterns");
  EXPECT_TRUE(Assign({.values = {"no*"}}, {}).ok());
}

TEST(RolePatterns, ThatContradictEachOtherAreRefused) {
  const absl::Status status =
      Assign({.keys = {"?"}, .values = {"b*"}}, {"a", "b"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReasonOf(status), "ROLE_PATTERNS_CONFLICT");
  EXPECT_EQ(GetErrorDetail(status)->tensor, "b");
}

TEST(RolePatterns, AreLimitedBeforeThereIsInput) {
  Compressor many(
      {.roles = {.keys = std::vector<std::string>(kMaxPatterns + 1, "a")}}, {});
  EXPECT_EQ(ReasonOf(many.ValidateOptions()), "INVALID_OPTIONS");
  EXPECT_EQ(GetErrorDetail(many.ValidateOptions())->field,
            "options.key_patterns");
  Compressor large(
      {.roles = {.values = {std::string(kMaxPatternBytes, 'a'), "b"}}}, {});
  EXPECT_EQ(GetErrorDetail(large.ValidateOptions())->limit, kMaxPatternBytes);
  EXPECT_EQ(GetErrorDetail(large.ValidateOptions())->field,
            "options.value_patterns");
}

TEST(RolePatterns, AreNoMoreWorkThanTheyMayBe) {
  // Of 512 words, and of one more.
  const std::string name(kMaxPatternWork / 512, 'a');
  const std::string most = "*" + std::string(512 * 64 - 1, 'a');
  EXPECT_TRUE(Assign({.values = {most}}, {name}).ok());
  const absl::Status status = Assign({.values = {most + "a"}}, {name}).status();
  EXPECT_EQ(ReasonOf(status), "INVALID_OPTIONS");
  EXPECT_EQ(GetErrorDetail(status)->limit, 512);
  EXPECT_EQ(GetErrorDetail(status)->field, "options.value_patterns");
}

TEST(RolePatterns, BindBoundsForKeys) {
  CompressOptions options{.codec = "int4",
                          .key_thresholds = QualityThresholds()};
  options.key_thresholds->max_rmse = 1e-9;
  const std::string cache = CacheOf({"k0", "v0"});
  EXPECT_EQ(ReasonOf(CompressFile(cache, options).status()),
            "THRESHOLD_MATCHES_NOTHING");
  options.roles.keys = {"k*"};
  const auto out = CompressFile(cache, options);
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_FALSE(out->report.tensors[0].verdict.passed);
  EXPECT_TRUE(out->report.tensors[1].verdict.passed);
}

TEST(RoleCounts, AreInTheReport) {
  const auto out =
      CompressFile(CacheOf({"layer_0_key", "x", "layer_0_value", "y", "z"}),
                   {.roles = {.keys = {"y"}}});
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ(out->report.roles.keys, 2);
  EXPECT_EQ(out->report.roles.values, 1);
  EXPECT_EQ(out->report.roles.neither, 2);
}

TEST(NoRoles, WarnsOnlyWhereACodecWouldUseThem) {
  const auto warnings = [](const std::string& cache,
                           const CompressOptions& options) {
    const auto out = CompressFile(cache, options);
    EXPECT_TRUE(out.ok()) << out.status();
    std::vector<std::string> codes;
    for (const Warning& each : out->report.warnings) {
      codes.push_back(each.code);
    }
    return codes;
  };
  const std::string nameless = CacheOf({"a", "b"});
  for (const char* codec : {"ecsq", "klt", "auto", "int4-kivi", "ecsq+zstd"}) {
    EXPECT_THAT(warnings(nameless, {.codec = codec}),
                ::testing::ElementsAre("NO_ROLES"))
        << codec;
    EXPECT_TRUE(
        warnings(nameless, {.codec = codec, .roles = {.keys = {"a"}}}).empty());
  }
  EXPECT_TRUE(warnings(nameless, {.codec = "int4"}).empty());
  EXPECT_TRUE(warnings(CacheOf({"layer_0_key"}), {.codec = "ecsq"}).empty());
  EXPECT_TRUE(
      warnings(CacheOf({"table"}, DType::kI32), {.codec = "ecsq"}).empty());
  EXPECT_TRUE(warnings(MakeFile({}), {.codec = "ecsq"}).empty());
}

}  // namespace
}  // namespace kvcompress
