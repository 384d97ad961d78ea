// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Caches in other layouts than [batch, heads, tokens, head_dim], through the
// whole library.

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "kvcompress/error.h"
#include "kvcompress/layout.h"
#include "support/safetensors_file.h"

namespace kvcompress {
namespace {

using testing::Compressed;
using testing::CompressFile;
using testing::DecompressFile;
using testing::MakeFile;
using testing::NamedTensor;
using testing::RandomBytes;
using testing::RandomTensor;

struct LayoutCase {
  const char* layout;
  std::vector<uint64_t> shape;
  size_t views;
};

// Of 70 tokens or so, in 2 heads of 32 channels.
const std::vector<LayoutCase>& LayoutCases() {
  static const auto* const kCases = new std::vector<LayoutCase>{
      {"bthd", {1, 70, 2, 32}, 1},          {"thd", {70, 2, 32}, 1},
      {"td:heads=2", {70, 64}, 1},          {"hdt", {2, 32, 70}, 1},
      {"2ltd:heads=2", {2, 2, 70, 64}, 4},  {"ltf:heads=2", {2, 70, 128}, 4},
      {"1ltf:heads=2", {1, 2, 70, 128}, 4}, {"paged", {9, 2, 8, 32}, 1},
      {"2pshd", {2, 9, 8, 2, 32}, 2},       {"phs(2d)", {9, 2, 8, 64}, 2},
      {"ph(2s)d", {9, 2, 16, 32}, 2},       {"mla:rope=8", {70, 40}, 2},
      {"2ltd:heads=2", {2, 2, 0, 64}, 4},
  };
  return *kCases;
}

std::string ReasonOfError(const absl::Status& status) {
  const auto detail = GetErrorDetail(status);
  return detail ? detail->reason : "";
}

class LayoutsTest : public ::testing::TestWithParam<const char*> {};

TEST_P(LayoutsTest, ComeBackInEveryType) {
  const bool lossless = std::string(GetParam()).starts_with("lossless");
  for (const LayoutCase& each : LayoutCases()) {
    for (const DType dtype : NumberDTypes()) {
      SCOPED_TRACE(each.layout);
      const std::string file = MakeFile({RandomTensor("a", dtype, each.shape)});
      const auto out = CompressFile(
          file,
          {.codec = GetParam(), .reconstruct = true, .layout = each.layout});
      ASSERT_TRUE(out.ok()) << out.status();
      EXPECT_EQ(out->report.tensors.size(), each.views);
      const auto restored = DecompressFile(out->artefact);
      ASSERT_TRUE(restored.ok()) << restored.status();
      EXPECT_EQ(*restored, out->reconstructed);
      EXPECT_EQ(restored->size(), file.size());
      EXPECT_TRUE(!lossless || *restored == file);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Codecs, LayoutsTest,
                         ::testing::Values("lossless", "lossless+zstd", "int4",
                                           "int8:32", "int4-hadamard",
                                           "int4-kivi", "sparse:0.5", "ecsq",
                                           "klt", "auto"));

std::string MixedLayouts() {
  return MakeFile({RandomTensor("a", DType::kBF16, {2, 3, 70, 64}),
                   RandomTensor("table", DType::kI32, {9}),
                   RandomTensor("b", DType::kF16, {2, 1, 33, 64})},
                  {{"layout", "2ltd:heads=2"}});
}

TEST(Layouts, DoNotDependOnChunksOrSteps) {
  const std::string file = MixedLayouts();
  const Compressed whole = *CompressFile(file, {.reconstruct = true});
  ASSERT_EQ(whole.report.tensors.size(), 9);
  EXPECT_EQ(whole.report.tensors[5].spec.name, "a[role=value,layer=2]");
  EXPECT_EQ(whole.report.tensors[6].spec.name, "table");
  for (const size_t chunk : {7, 4096, 16385}) {
    EXPECT_EQ(CompressFile(file, {.reconstruct = true}, chunk)->artefact,
              whole.artefact);
    for (const size_t most : {1, 1000, 100000}) {
      if (chunk == 7 && most == 1) continue;
      EXPECT_EQ(*DecompressFile(whole.artefact, {}, chunk, nullptr, most),
                whole.reconstructed);
    }
  }
}

TEST(Layouts, AreCodedAsTheirViews) {
  const NamedTensor source = RandomTensor("a", DType::kBF16, {2, 1, 70, 64});
  TensorSpec spec = source.spec;
  const Layout layout = *Layout::Of("2ltd:heads=2", spec);
  std::vector<NamedTensor> views;
  for (uint64_t i = 0; i < layout.views(); ++i) {
    TensorSpec view = layout.View(i);
    view.name = i == 0 ? "layer_0_key" : "layer_0_value";
    std::string bytes(layout.slab_bytes(), '\0');
    layout.Gather(i, 0, 2 * 70 * 32,
                  source.bytes.data() + i * layout.slab_bytes(), bytes.data());
    views.push_back({std::move(view), std::move(bytes)});
  }
  const Compressed apart = *CompressFile(MakeFile(views), {.codec = "klt"});
  const Compressed together = *CompressFile(
      MakeFile({source}), {.codec = "klt", .layout = "2ltd:heads=2"});
  ASSERT_EQ(together.report.tensors.size(), 2);
  for (size_t i = 0; i < 2; ++i) {
    const TensorReport& view = together.report.tensors[i];
    EXPECT_EQ(view.digest, apart.report.tensors[i].digest);
    EXPECT_EQ(view.metrics.centred_snr_db,
              apart.report.tensors[i].metrics.centred_snr_db);
    EXPECT_EQ(view.spec.layer, 0);
  }
  EXPECT_EQ(together.report.metrics.rmse, apart.report.metrics.rmse);
}

TEST(Layouts, GiveBackSelectedTensorsAndTokens) {
  const std::string file = MixedLayouts();
  const std::string artefact =
      CompressFile(file, {.codec = "lossless"})->artefact;
  DecompressReport report;
  const auto b = DecompressFile(artefact, {.tensors = {"b"}}, 1 << 20, &report);
  ASSERT_TRUE(b.ok()) << b.status();
  EXPECT_EQ(report.tensor_count, 3);
  EXPECT_EQ(report.tensors_selected, 1);
  EXPECT_EQ(b->substr(b->size() - 2 * 33 * 128),
            file.substr(file.size() - 2 * 33 * 128));

  const auto some =
      DecompressFile(artefact, {.tensors = {"b"}, .tokens = {{5, 9}}});
  ASSERT_TRUE(some.ok()) << some.status();
  const std::string source = file.substr(file.size() - 2 * 33 * 128);
  EXPECT_EQ(
      some->substr(some->size() - 2 * 4 * 128),
      source.substr(5 * 128, 4 * 128) + source.substr((33 + 5) * 128, 4 * 128));
  EXPECT_EQ(ReasonOfError(DecompressFile(
                              artefact, {.tensors = {"b"}, .tokens = {{5, 34}}})
                              .status()),
            "INVALID_TOKENS");
  const std::string pages =
      MakeFile({RandomTensor("p", DType::kBF16, {9, 2, 8, 32})});
  const std::string paged =
      CompressFile(pages, {.codec = "lossless", .layout = "paged"})->artefact;
  EXPECT_EQ(ReasonOfError(DecompressFile(paged, {.tokens = {{0, 1}}}).status()),
            "INVALID_TOKENS");
  const auto two = DecompressFile(paged, {.tokens = {{24, 40}}});
  ASSERT_TRUE(two.ok()) << two.status();
  constexpr size_t kPage = 2 * 8 * 32 * 2;
  EXPECT_EQ(two->substr(two->size() - 2 * kPage),
            pages.substr(pages.size() - 6 * kPage, 2 * kPage));
  EXPECT_TRUE(DecompressFile(paged, {.verify_only = true}).ok());
}

TEST(Layouts, ChangeNothingByDefault) {
  const std::string file =
      MakeFile({RandomTensor("layer_0_key", DType::kBF16, {1, 2, 65, 64})});
  const std::string artefact = CompressFile(file)->artefact;
  EXPECT_EQ(CompressFile(file, {.layout = "bhtd"})->artefact, artefact);
  EXPECT_EQ(CompressFile(file, {.layout = "flat"})->artefact, artefact);
  EXPECT_EQ(CompressFile(file, {.layout = "b (h) t d : h = 2"})->artefact,
            artefact);
  EXPECT_NE(CompressFile(file, {.layout = "bthd"})->artefact, artefact);
}

TEST(Layouts, AreRefusedWhereTheyDoNotFit) {
  const std::string file =
      MakeFile({RandomTensor("a", DType::kBF16, {70, 64})});
  for (const char* layout : {"thd", "bhtd", "td", "td:heads=3"}) {
    const absl::Status status = CompressFile(file, {.layout = layout}).status();
    EXPECT_EQ(ReasonOfError(status), "LAYOUT_MISMATCH") << layout;
    EXPECT_EQ(GetErrorDetail(status)->tensor, "a");
  }
  EXPECT_EQ(ReasonOfError(CompressFile(file, {.layout = "NHD"}).status()),
            "INVALID_LAYOUT");
  const std::string told = MakeFile({RandomTensor("a", DType::kBF16, {70, 64})},
                                    {{"layout", "NHD"}});
  EXPECT_EQ(ReasonOfError(CompressFile(told).status()), "INVALID_LAYOUT");
  EXPECT_TRUE(CompressFile(told, {.layout = "flat"}).ok());
}

TEST(Layouts, CountTheirMemory) {
  Compressor compressor({.layout = "thd"}, {});
  CompressOutput out;
  const uint64_t size = 1000 * 8 * 64 * 2;
  ASSERT_TRUE(
      compressor
          .DeclareTensors(
              {{.name = "a", .dtype = DType::kBF16, .shape = {1000, 8, 64}}},
              {}, &out)
          .ok());
  EXPECT_GE(compressor.working_bytes(), size);
  Compressor small({.layout = "thd"}, {.max_tensor_bytes = size - 1});
  const absl::Status status = small.DeclareTensors(
      {{.name = "a", .dtype = DType::kBF16, .shape = {1000, 8, 64}}}, {}, &out);
  EXPECT_EQ(ReasonOfError(status), "TENSOR_TOO_LARGE");

  const std::string artefact =
      CompressFile(MakeFile({RandomTensor("a", DType::kBF16, {1000, 8, 64})}),
                   {.layout = "thd"})
          ->artefact;
  Decompressor decompressor({}, {.max_tensor_bytes = size - 1});
  absl::string_view bytes = artefact;
  std::string restored;
  EXPECT_EQ(
      ReasonOfError(decompressor.Restore(&bytes, 1 << 20, &restored).status()),
      "TENSOR_TOO_LARGE");
  Decompressor roomy({}, {});
  bytes = artefact;
  ASSERT_TRUE(roomy.Restore(&bytes, 1 << 20, &restored).ok());
  EXPECT_GE(roomy.working_bytes(), size);
}

TEST(Layouts, ATableDeclaresThemOneByOne) {
  Compressor compressor({.layout = "thd"}, {});
  CompressOutput out;
  std::vector<TensorSpec> tensors = {
      {.name = "a", .dtype = DType::kBF16, .shape = {10, 2, 32}},
      {.name = "b", .dtype = DType::kBF16, .shape = {10, 64}, .layout = "flat"},
      {.name = "c",
       .dtype = DType::kBF16,
       .shape = {10, 64},
       .layout = "td:heads=2"}};
  ASSERT_TRUE(compressor.DeclareTensors(tensors, {}, &out).ok());
  for (const TensorSpec& each : tensors) {
    ASSERT_TRUE(
        compressor
            .AppendTensor(each.name, RandomBytes(each.dtype, 640, 3), &out)
            .ok());
  }
  const auto report = compressor.Finish();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->tensors[0].spec.layout, "thd");
  EXPECT_EQ(report->tensors[1].spec.layout, "");
  EXPECT_EQ(report->tensors[2].spec.layout, "t(hd):h=2");
}

}  // namespace
}  // namespace kvcompress
