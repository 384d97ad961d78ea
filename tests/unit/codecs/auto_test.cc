// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The quality contract: per tensor the smallest that holds.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "absl/strings/str_cat.h"
#include "kvcompress/error.h"
#include "support/safetensors_file.h"

namespace kvcompress {
namespace {

using testing::CompressFile;
using testing::MakeFile;
using testing::NamedTensor;

NamedTensor Tensor(std::string name, DType dtype) {
  return {{.name = std::move(name), .dtype = dtype, .shape = {1, 2, 50, 64}},
          testing::RandomBytes(dtype, 6400, 3)};
}

std::string File() {
  return MakeFile({Tensor("layer_0_key", DType::kBF16),
                   Tensor("layer_0_value", DType::kF16),
                   Tensor("other", DType::kF32)});
}

TEST(Auto, EveryTensorHoldsTheThresholds) {
  for (double snr : {5.0, 18.0, 25.0, 40.0}) {
    const auto out = CompressFile(
        File(), {.codec = "auto", .thresholds = {.min_snr_db = snr}});
    ASSERT_TRUE(out.ok()) << out.status();
    EXPECT_EQ(out->report.tensors_failed, 0) << snr;
    for (const TensorReport& tensor : out->report.tensors) {
      EXPECT_NE(tensor.codec, "auto");
      if (tensor.metrics.snr_db) {
        EXPECT_GT(*tensor.metrics.snr_db, snr);
      }
    }
    EXPECT_TRUE(testing::DecompressFile(out->artefact).ok());
  }
}

std::vector<std::string> Candidates(const Codec& codec) {
  std::vector<std::string> all;
  for (const auto& row : codec.AutoCandidates(Effort::kBalanced)) {
    for (const std::string& text : row) {
      all.emplace_back(codec.Parse(text)->text());
    }
  }
  return all;
}

TEST(Auto, IsNoLargerThanAnyCodecThatHolds) {
  const CompressOptions automatic{.codec = "auto"};
  const auto best = CompressFile(File(), automatic);
  ASSERT_TRUE(best.ok()) << best.status();
  for (const Codec* codec : AllCodecs()) {
    for (const std::string& text : codec->SelfTestParameters()) {
      const auto other = CompressFile(
          File(), {.codec = CodecString(codec->traits().name, text)});
      ASSERT_TRUE(other.ok()) << other.status();
      const std::vector<std::string> candidates = Candidates(*codec);
      if (!codec->stored()) continue;
      for (size_t i = 0; i < best->report.tensors.size(); ++i) {
        const TensorReport& rival = other->report.tensors[i];
        const std::string parameters(codec->Parse(text)->text());
        if (!rival.verdict.passed ||
            std::find(candidates.begin(), candidates.end(), parameters) ==
                candidates.end()) {
          continue;
        }
        EXPECT_LE(best->report.tensors[i].compressed_size,
                  rival.compressed_size)
            << rival.codec;
      }
    }
  }
}

TEST(Auto, LooksFurtherAtMoreEffort) {
  // Channels that move together: two factors and little else.
  std::vector<float> values(3 * 640 * 32);
  for (size_t i = 0; i < values.size(); ++i) {
    const double t = static_cast<double>(i / 32 % 640);
    const double c = static_cast<double>(i % 32 + i / (640 * 32));
    values[i] = static_cast<float>(
        4 * std::sin(t * t) * std::sin(c) +
        3 * std::sin(3 * t * t + 1) * std::cos(2 * c) +
        0.3 * std::sin(7 * static_cast<double>(i) * static_cast<double>(i)));
  }
  std::string bytes(reinterpret_cast<const char*>(values.data()),
                    values.size() * sizeof(float));
  const std::string file =
      MakeFile({{{.name = "layer_0_value", .shape = {1, 3, 640, 32}}, bytes}});
  std::map<Effort, TensorReport> reports;
  for (const Effort effort :
       {Effort::kFast, Effort::kBalanced, Effort::kBest}) {
    const auto out = CompressFile(file, {.codec = "auto", .effort = effort});
    ASSERT_TRUE(out.ok()) << out.status();
    EXPECT_EQ(out->report.tensors_failed, 0);
    EXPECT_TRUE(testing::DecompressFile(out->artefact).ok());
    reports[effort] = out->report.tensors[0];
  }
  EXPECT_NE(reports[Effort::kFast].codec.substr(0, 3), "klt");
  EXPECT_EQ(reports[Effort::kBalanced].codec, "klt:contract");
  EXPECT_EQ(reports[Effort::kBest].codec, "klt:contract");
  EXPECT_LT(reports[Effort::kBalanced].compressed_size,
            reports[Effort::kFast].compressed_size);
  EXPECT_LT(reports[Effort::kBest].compressed_size,
            reports[Effort::kBalanced].compressed_size);
}

// Layers that are alike but for their size, as those of a model are.
TEST(Auto, LearnsFromALayerBefore) {
  std::vector<NamedTensor> layers;
  for (int layer = 0; layer < 12; ++layer) {
    NamedTensor tensor = Tensor("", DType::kF32);
    tensor.spec.name = absl::StrCat("layer_", layer, "_key");
    for (size_t i = 0; i < tensor.bytes.size(); i += sizeof(float)) {
      float value;
      std::memcpy(&value, &tensor.bytes[i], sizeof(value));
      value *= 0.2F + 0.3F * static_cast<float>(layer * 5 % 12);
      std::memcpy(&tensor.bytes[i], &value, sizeof(value));
    }
    layers.push_back(std::move(tensor));
  }
  for (const double snr : {8.0, 18.0, 30.0}) {
    const CompressOptions options = {
        .codec = "auto",
        .thresholds = {.max_rmse = 0.3, .max_error = 3, .min_snr_db = snr}};
    const auto together = CompressFile(MakeFile(layers), options);
    ASSERT_TRUE(together.ok()) << together.status();
    EXPECT_EQ(together->report.tensors_failed, 0);
    uint64_t size = 0;
    uint64_t size_alone = 0;
    for (size_t i = 0; i < layers.size(); ++i) {
      const auto alone = CompressFile(MakeFile({layers[i]}), options);
      ASSERT_TRUE(alone.ok()) << alone.status();
      size += together->report.tensors[i].compressed_size;
      size_alone += alone->report.tensors[0].compressed_size;
    }
    EXPECT_LE(static_cast<double>(size), 1.01 * static_cast<double>(size_alone))
        << snr;
  }
}

// A long tensor, the first tokens of which are as the others or much smaller:
// then what they tell of the others is wrong.
TEST(Auto, SearchesASampleOfALongTensor) {
  for (const float first : {1.0F, 0.01F}) {
    NamedTensor tensor = {{.name = "layer_0_key", .shape = {1, 2, 4096, 32}},
                          testing::RandomBytes(DType::kF32, 262144, 3)};
    for (size_t i = 0; i < 262144; ++i) {
      if (i / 32 % 4096 >= 512) continue;
      float value;
      std::memcpy(&value, &tensor.bytes[i * sizeof(value)], sizeof(value));
      value *= first;
      std::memcpy(&tensor.bytes[i * sizeof(value)], &value, sizeof(value));
    }
    const std::string file = MakeFile({tensor});
    for (const double snr : {8.0, 18.0, 30.0}) {
      CompressOptions options = {.codec = "auto",
                                 .thresholds = {.min_snr_db = snr}};
      const auto sampled = CompressFile(file, options);
      ASSERT_TRUE(sampled.ok()) << sampled.status();
      EXPECT_EQ(sampled->report.tensors_failed, 0);
      const TensorReport& chosen = sampled->report.tensors[0];
      for (const char* const rival :
           {"int8", "int4", "ecsq:contract", "ecsq:high", "klt:contract"}) {
        options.codec = rival;
        const auto other = CompressFile(file, options);
        ASSERT_TRUE(other.ok()) << other.status();
        if (other->report.tensors_failed > 0) continue;
        EXPECT_LE(static_cast<double>(chosen.compressed_size),
                  1.01 * static_cast<double>(
                             other->report.tensors[0].compressed_size))
            << first << " " << snr << " " << chosen.codec << " " << rival;
      }
    }
  }
}

TEST(Auto, BoundsOfARoleAreForTheRoleAlone) {
  const auto out = CompressFile(
      File(), {.codec = "auto",
               .thresholds = {.min_snr_db = 10},
               .key_thresholds = QualityThresholds{.min_snr_db = 35}});
  ASSERT_TRUE(out.ok()) << out.status();
  const std::vector<TensorReport>& tensors = out->report.tensors;
  EXPECT_GT(*tensors[0].metrics.snr_db, 35);
  EXPECT_LT(*tensors[1].metrics.snr_db, 35);
  EXPECT_LT(tensors[1].compressed_size, tensors[0].compressed_size);
}

TEST(Auto, TheChoiceDoesNotDependOnChunks) {
  const CompressOptions options{.codec = "auto", .reconstruct = true};
  const auto whole = CompressFile(File(), options);
  const auto cut = CompressFile(File(), options, 999);
  ASSERT_TRUE(whole.ok() && cut.ok());
  EXPECT_EQ(whole->artefact, cut->artefact);
  EXPECT_EQ(*testing::DecompressFile(whole->artefact), whole->reconstructed);
}

TEST(Auto, ReconstructsAndMeasuresWhatTheChosenCodecDoes) {
  const std::string empty = MakeFile(
      {Tensor("layer_0_key", DType::kBF16),
       {{.name = "layer_1_key", .dtype = DType::kF32, .shape = {1, 2, 0, 64}},
        ""}});
  for (const std::string& file : {File(), empty}) {
    const auto out =
        CompressFile(file, {.codec = "auto", .reconstruct = true}, 1000);
    ASSERT_TRUE(out.ok()) << out.status();
    EXPECT_EQ(out->reconstructed, *testing::DecompressFile(out->artefact));
    for (const TensorReport& tensor : out->report.tensors) {
      const auto alone = CompressFile(file, {.codec = tensor.codec});
      ASSERT_TRUE(alone.ok()) << alone.status();
      for (const TensorReport& same : alone->report.tensors) {
        if (same.spec.name != tensor.spec.name) continue;
        EXPECT_EQ(same.digest, tensor.digest);
        EXPECT_EQ(same.metrics.centred_snr_db, tensor.metrics.centred_snr_db);
        EXPECT_EQ(same.metrics.token_snr_db_p1, tensor.metrics.token_snr_db_p1);
      }
    }
  }
}

TEST(Auto, TiesGoToTheCodecThatIsListedFirst) {
  const std::string file =
      MakeFile({{{.name = "few", .dtype = DType::kF32, .shape = {1, 1, 1, 64}},
                 testing::RandomBytes(DType::kF32, 64, 3)}});
  const QualityThresholds low{.min_snr_db = 5};
  const auto best = CompressFile(file, {.codec = "auto", .thresholds = low});
  const auto tied =
      CompressFile(file, {.codec = "int4-hadamard", .thresholds = low});
  ASSERT_TRUE(best.ok() && tied.ok());
  EXPECT_EQ(best->report.tensors[0].codec, "int4:64");
  EXPECT_TRUE(tied->report.tensors[0].verdict.passed);
  EXPECT_EQ(best->report.tensors[0].compressed_size,
            tied->report.tensors[0].compressed_size);
}

TEST(Auto, TakesThresholdsAndNothingElse) {
  EXPECT_FALSE(ParseCodec("auto:group_size=64").ok());
  EXPECT_FALSE(ParseCodec("auto:high").ok());
}

TEST(Auto, HasALimitOnTensors) {
  Compressor compressor({.codec = "auto"}, {.max_tensor_bytes = 1000});
  CompressOutput output;
  const std::string file = File();
  const absl::Status status = compressor.Append(file, &output);
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(GetErrorDetail(status)->tensor, "layer_0_key");
  EXPECT_EQ(GetErrorDetail(status)->limit, 1000);
}

}  // namespace
}  // namespace kvcompress
