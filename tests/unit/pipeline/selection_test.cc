// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// What of an artefact is given back, and in which order.

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kvcompress/error.h"
#include "support/safetensors_file.h"

namespace kvcompress {
namespace {

using testing::Compressed;
using testing::CompressFile;
using testing::DecompressFile;
using testing::F32Bytes;
using testing::MakeFile;
using testing::NamedTensor;
using testing::RandomTensor;

TEST(Decompress, GivesBackOnlyWhatIsAskedFor) {
  const std::string file =
      MakeFile({RandomTensor("layer_0_key", DType::kF32, {2, 3, 10, 4}),
                RandomTensor("layer_0_value", DType::kF16, {2, 3, 10, 4}),
                RandomTensor("other", DType::kF32, {5})});
  const Compressed out = *CompressFile(file, {.reconstruct = true});
  const auto values = [&] {  // decoded values of the key, after the header
    const std::string keys =
        *DecompressFile(out.artefact, {.tensors = {"*_key"}});
    return keys.substr(keys.size() - 2 * 3 * 10 * 4 * 4);
  }();
  const std::string part = *DecompressFile(
      out.artefact, {.tensors = {"*_key"}, .tokens = {{2, 5}}}, 13);
  std::string expected;
  for (int head = 0; head < 6; ++head) {
    expected += values.substr((head * 10 + 2) * 16, 3 * 16);
  }
  EXPECT_EQ(part.substr(part.size() - expected.size()), expected);
  EXPECT_NE(part.find("\"shape\":[2,3,3,4]"), std::string::npos);

  const auto reason = [&](const DecompressOptions& options) {
    const absl::Status status = DecompressFile(out.artefact, options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return GetErrorDetail(status)->reason;
  };
  EXPECT_EQ(reason({.tokens = {{0, 1}}}), "INVALID_TOKENS");  // rank of other
  EXPECT_EQ(reason({.tensors = {"*key"}, .tokens = {{5, 5}}}),
            "INVALID_TOKENS");
  EXPECT_EQ(reason({.tensors = {"*key"}, .tokens = {{0, 11}}}),
            "INVALID_TOKENS");
}

// Names are in the order that safetensors writes them in, which is not that of
// the layers.
TEST(Decompress, GivesBackLayerByLayer) {
  const auto file_of = [](const std::vector<const char*>& names) {
    std::vector<NamedTensor> tensors;
    for (const char* name : names) {
      const uint64_t tokens = 30 + std::strlen(name);
      tensors.push_back(RandomTensor(name, DType::kBF16, {1, 2, tokens, 64}));
    }
    return MakeFile(tensors);
  };
  const std::string artefact =
      CompressFile(
          file_of({"layer_0_value", "layer_10_key", "layer_10_value",
                   "layer_2_key", "layer_2_value", "other", "layer_0_key"}),
          {.codec = "lossless"})
          ->artefact;
  for (const size_t chunk : {size_t{1000}, artefact.size()}) {
    EXPECT_EQ(
        *DecompressFile(artefact, {.order = TensorOrder::kLayers}, chunk),
        file_of({"layer_0_key", "layer_0_value", "layer_2_key", "layer_2_value",
                 "layer_10_key", "layer_10_value", "other"}));
    EXPECT_EQ(
        *DecompressFile(
            artefact,
            {.tensors = {"layer_*0_*"}, .order = TensorOrder::kLayers}, chunk),
        file_of({"layer_0_key", "layer_0_value", "layer_10_key",
                 "layer_10_value"}));
  }
}

TEST(Decompress, SaysWhatIsMissingInAnyOrder) {
  const std::string artefact =
      CompressFile(MakeFile({RandomTensor("layer_1_key", DType::kF32, {64}),
                             RandomTensor("layer_0_key", DType::kF32, {128})}))
          ->artefact;
  constexpr size_t kFirst = 34, kSecond = 68;  // bytes of the payloads
  for (const TensorOrder order : {TensorOrder::kFile, TensorOrder::kLayers}) {
    for (const size_t cut :
         {size_t{1}, kSecond, kSecond + 1, kSecond + kFirst}) {
      const absl::Status status =
          DecompressFile(artefact.substr(0, artefact.size() - cut),
                         {.order = order})
              .status();
      const size_t missing = cut > kSecond ? cut - kSecond : cut;
      const char* const tensor = cut > kSecond ? "layer_1_key" : "layer_0_key";
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
      EXPECT_EQ(
          std::string(status.message()),
          absl::StrCat("the artefact is cut short: ", missing,
                       " bytes of the payload are missing (tensor \"", tensor,
                       "\", offset ", artefact.size() - cut, ")"));
    }
  }
}

// Another one that matches does not make up for it.
TEST(Decompress, APatternThatMatchesNothingIsRefused) {
  const std::string artefact =
      CompressFile(MakeFile({RandomTensor("layer_0_key", DType::kF32, {64}),
                             RandomTensor("layer_0_value", DType::kF32, {64})}))
          ->artefact;
  for (const bool verify_only : {false, true}) {
    for (const std::vector<std::string>& patterns :
         {std::vector<std::string>{"no*"}, {"*_key", "no*"}, {"no*", "*"}}) {
      const absl::Status status =
          DecompressFile(artefact,
                         {.tensors = patterns, .verify_only = verify_only})
              .status();
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_EQ(status.message(), "no tensor of the artefact matches \"no*\"");
      EXPECT_EQ(GetErrorDetail(status)->reason, "NO_TENSOR_SELECTED");
      EXPECT_EQ(GetErrorDetail(status)->field, "options.tensors");
    }
  }
  EXPECT_TRUE(DecompressFile(artefact, {.tensors = {"*_key", "*", "*"}}).ok());
  const std::string none = CompressFile(MakeFile({}))->artefact;
  EXPECT_TRUE(DecompressFile(none, {.tensors = {"no*"}}).ok());
}

TEST(Decompress, PatternsAreNotWithoutNumber) {
  const std::string artefact =
      CompressFile(MakeFile({RandomTensor("a", DType::kF32, {64})}))->artefact;
  const std::vector<std::string> most(kMaxPatterns, "a");
  EXPECT_TRUE(DecompressFile(artefact, {.tensors = most}).ok());
  const std::vector<std::string> more(kMaxPatterns + 1, "a");
  const absl::Status status =
      DecompressFile(artefact, {.tensors = more}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(GetErrorDetail(status)->reason, "INVALID_OPTIONS");
  EXPECT_EQ(GetErrorDetail(status)->limit, kMaxPatterns);
}

TEST(Decompress, PatternsAreNoMoreWorkThanTheyMayBe) {
  // Of 512 words, and of one more.
  const std::string name(kMaxPatternWork / 512, 'a');
  const std::string most = absl::StrCat("*", std::string(512 * 64 - 1, 'a'));
  const std::string artefact =
      CompressFile(MakeFile({RandomTensor(name, DType::kF32, {64})}))->artefact;
  EXPECT_TRUE(DecompressFile(artefact, {.tensors = {most}}).ok());
  const auto check = [&](const std::vector<std::string>& patterns,
                         uint64_t limit) {
    const absl::Status status =
        DecompressFile(artefact, {.tensors = patterns}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(GetErrorDetail(status)->reason, "INVALID_OPTIONS");
    EXPECT_EQ(GetErrorDetail(status)->limit, limit);
    EXPECT_EQ(GetErrorDetail(status)->field, "options.tensors");
  };
  check({most + "a"}, 512);
  check({most, "*"}, 512);
  check({std::string(kMaxPatternBytes, '*'), "a"}, kMaxPatternBytes);
}

// Each of thousands of tensors by its name is the usual case.
TEST(Decompress, NamesWithoutWildcardsAreNoWork) {
  std::vector<NamedTensor> tensors;
  std::vector<std::string> patterns;
  for (int i = 0; i < 4096; ++i) {
    const std::string name = absl::StrCat("model.layers.", i, ".key");
    tensors.push_back({{.name = name, .shape = {1}}, F32Bytes({1})});
    if (i % 4 == 0) patterns.push_back(name);
  }
  ASSERT_EQ(patterns.size(), kMaxPatterns);
  const std::string artefact = CompressFile(MakeFile(tensors))->artefact;
  DecompressReport report;
  EXPECT_TRUE(
      DecompressFile(artefact, {.tensors = patterns}, 1 << 20, &report).ok());
  EXPECT_EQ(report.tensors_selected, kMaxPatterns);
}

TEST(Decompress, VerifiesAlsoWhatIsNotAskedFor) {
  const std::string file = MakeFile({RandomTensor("a", DType::kF32, {64}),
                                     RandomTensor("b", DType::kF32, {64})});
  std::string artefact = CompressFile(file)->artefact;
  DecompressReport report;
  EXPECT_EQ(*DecompressFile(artefact, {.verify_only = true}, 100, &report), "");
  EXPECT_EQ(report.tensors_selected, 0);
  EXPECT_EQ(report.tensor_count, 2);
  artefact.back() ^= 1;
  EXPECT_FALSE(DecompressFile(artefact, {.verify_only = true}).ok());
  EXPECT_FALSE(DecompressFile(artefact, {.tensors = {"a"}}).ok());
}

}  // namespace
}  // namespace kvcompress
