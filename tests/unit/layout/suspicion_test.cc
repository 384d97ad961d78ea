// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Whether the real sample is recognised in every layout, and nothing else is.

#include "layout/suspicion.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kvcompress/compressor.h"
#include "kvcompress/layout.h"
#include "support/safetensors_file.h"

namespace kvcompress {
namespace {

using testing::CompressFile;
using testing::MakeFile;
using testing::NamedTensor;
using testing::RandomBytes;

constexpr uint64_t kSampleLayers = 30, kSampleHeads = 3, kSampleTokens = 96,
                   kSampleChannels = 64;

// The tensors of the sample by name: [1, 3, 96, 64] BF16.
const std::map<std::string, std::string>& SampleCache() {
  static const auto* const kSample = [] {
    std::ifstream stream(KVCOMPRESS_TEST_DATA
                         "/smollm2_kjv_96_bf16.safetensors",
                         std::ios::binary);
    const std::string file((std::istreambuf_iterator<char>(stream)), {});
    auto* const sample = new std::map<std::string, std::string>;
    SafetensorsHeaderReader reader(1 << 20);
    absl::string_view bytes = file;
    if (!reader.Append(&bytes).ok()) return sample;
    const auto header = ParseSafetensorsHeader(reader.json());
    for (const SafetensorsEntry& entry : header->tensors) {
      (*sample)[entry.spec.name] =
          std::string(bytes.substr(entry.begin, entry.end - entry.begin));
    }
    return sample;
  }();
  return *kSample;
}

const std::string& Part(uint64_t layer, TensorRole role) {
  return SampleCache().at(absl::StrCat(
      "layer_", layer, role == TensorRole::kKey ? "_key" : "_value"));
}

// A tensor of this layout and shape, made of the sample.
NamedTensor InLayout(const std::string& text, TensorSpec spec) {
  spec.dtype = DType::kBF16;
  const Layout layout = *Layout::Of(text, spec);
  std::string bytes;
  for (uint64_t slab = 0; slab < layout.slabs(); ++slab) {
    std::string part(layout.slab_bytes(), '\0');
    for (uint64_t i = 0; i < layout.views_per_slab(); ++i) {
      const uint64_t index = slab * layout.views_per_slab() + i;
      const TensorSpec view = layout.View(index);
      const std::string& source = Part(view.layer.value_or(0), view.role);
      EXPECT_EQ(*ElementCount(view) * 2, source.size());
      ViewWriter(layout, index, part.data()).Append(source);
    }
    bytes += part;
  }
  return {std::move(spec), std::move(bytes)};
}

struct SuspectCase {
  const char* layout;
  std::vector<uint64_t> shape;
  const char* likely;
};
constexpr uint64_t kSamplePages = kSampleTokens / 16;

// A tensor for each layer and role.
const std::vector<SuspectCase>& Apart() {
  static const auto* const kCases = new std::vector<SuspectCase>{
      {"bthd", {1, kSampleTokens, kSampleHeads, kSampleChannels}, "bthd"},
      {"thd", {kSampleTokens, kSampleHeads, kSampleChannels}, "thd"},
      {"htd", {kSampleHeads, kSampleTokens, kSampleChannels}, "htd"},
      {"td:heads=3",
       {kSampleTokens, kSampleHeads * kSampleChannels},
       "td:heads=N"},
      {"phsd", {kSamplePages, kSampleHeads, 16, kSampleChannels}, "phsd"},
      {"pshd", {kSamplePages, 16, kSampleHeads, kSampleChannels}, "bthd"},
  };
  return *kCases;
}

// A tensor for all of a layer, or of the cache.
const std::vector<SuspectCase>& Together() {
  static const auto* const kCases = new std::vector<SuspectCase>{
      {"2ltd:heads=3",
       {2, kSampleLayers, kSampleTokens, kSampleHeads * kSampleChannels},
       "2ltd:heads=N"},
      {"ltf:heads=3",
       {kSampleLayers, kSampleTokens, kSampleHeads * 2 * kSampleChannels},
       "ltf:heads=N"},
      {"1ltf:heads=3",
       {1, kSampleLayers, kSampleTokens, kSampleHeads * 2 * kSampleChannels},
       "1ltf:heads=N"},
      {"2pshd", {2, kSamplePages, 16, kSampleHeads, kSampleChannels}, "2pshd"},
      {"phs(2d)",
       {kSamplePages, kSampleHeads, 16, 2 * kSampleChannels},
       "phs(2d)"},
      {"ph(2s)d", {kSamplePages, kSampleHeads, 32, kSampleChannels}, "ph(2s)d"},
      {"2thd", {2, kSampleTokens, kSampleHeads, kSampleChannels}, "2thd"},
  };
  return *kCases;
}

std::vector<NamedTensor> TensorsOf(const SuspectCase& each, bool apart) {
  std::vector<NamedTensor> tensors;
  for (uint32_t layer = 0; layer < kSampleLayers; ++layer) {
    TensorSpec spec{.name = absl::StrCat("cache_of_", layer),
                    .shape = each.shape,
                    .layer = layer};
    if (!apart) {
      const bool all = absl::StrContains(each.layout, "l");
      if (all) spec.layer.reset();
      tensors.push_back(InLayout(each.layout, spec));
      tensors.back().spec.layer.reset();
      if (all) break;
      continue;
    }
    for (const TensorRole role : {TensorRole::kKey, TensorRole::kValue}) {
      spec.role = role;
      spec.name = absl::StrCat("layer_", layer,
                               role == TensorRole::kKey ? "_key" : "_value");
      tensors.push_back(InLayout(each.layout, spec));
    }
  }
  return tensors;
}

std::string Likely(const NamedTensor& tensor) {
  LayoutSample sample(tensor.spec);
  // In uneven parts.
  absl::string_view left = tensor.bytes;
  for (size_t size = 1; !left.empty(); size = size * 3 + 1) {
    const absl::string_view part = left.substr(0, size);
    sample.Add(part);
    left.remove_prefix(part.size());
  }
  return std::string(sample.Likely());
}

TEST(Suspicion, RecognisesTheSampleTensorByTensor) {
  ASSERT_EQ(SampleCache().size(), 2 * kSampleLayers);
  for (const bool apart : {true, false}) {
    for (const SuspectCase& each : apart ? Apart() : Together()) {
      std::map<std::string, int> found;
      const std::vector<NamedTensor> tensors = TensorsOf(each, apart);
      for (const NamedTensor& tensor : tensors) ++found[Likely(tensor)];
      // Where a page ends, there are few tokens to compare.
      const size_t missed =
          each.shape[0] == kSamplePages ? tensors.size() / 6 : 0;
      EXPECT_LE(found[""], missed) << each.layout;
      EXPECT_GE(found[each.likely], tensors.size() * 5 / 6)
          << each.layout << " as " << ::testing::PrintToString(found);
    }
  }
}

TEST(Suspicion, LeavesTheSampleAloneAsItIs) {
  for (const auto& [name, bytes] : SampleCache()) {
    for (const bool named : {true, false}) {
      TensorSpec spec{
          .name = named ? name : "x",
          .dtype = DType::kBF16,
          .shape = {1, kSampleHeads, kSampleTokens, kSampleChannels}};
      InferRole(&spec);
      EXPECT_EQ(Likely({spec, bytes}), "") << name;
    }
  }
}

TEST(Suspicion, LeavesOtherTensorsAlone) {
  const std::vector<std::vector<uint64_t>> kShapes = {
      {1, 2, 65, 64},  {64, 64},        {3, 40, 32},     {2, 3, 4, 5, 16},
      {1, 8, 8, 64},   {32, 16},        {4, 4, 4, 16},   {1, 1, 1000, 24},
      {2, 30, 9, 192}, {16, 2, 16, 64}, {1, 30, 20, 384}};
  for (const auto& shape : kShapes) {
    for (const TensorRole role : {TensorRole::kNone, TensorRole::kKey}) {
      TensorSpec spec{
          .name = "a", .dtype = DType::kF32, .shape = shape, .role = role};
      ASSERT_TRUE(LayoutSample::Applies(spec));
      const uint64_t count = *ElementCount(spec);
      for (uint32_t seed = 0; seed < 5; ++seed) {
        EXPECT_EQ(Likely({spec, RandomBytes(spec.dtype, count, seed)}), "")
            << ::testing::PrintToString(shape);
      }
      EXPECT_EQ(Likely({spec, std::string(count * 4, '\0')}), "");
      EXPECT_EQ(Likely({spec, std::string(count * 4, '\xff')}), "");
    }
  }
  for (const TensorSpec& spec :
       {TensorSpec{.dtype = DType::kF32, .shape = {}},
        TensorSpec{.dtype = DType::kF32, .shape = {1000}},
        TensorSpec{.dtype = DType::kF32, .shape = {1000, 8}},
        TensorSpec{.dtype = DType::kF32, .shape = {1000, 0}},
        TensorSpec{.dtype = DType::kF32, .shape = {0, 8, 8, 8}},
        TensorSpec{.dtype = DType::kF32, .shape = {8, uint64_t{1} << 40}},
        TensorSpec{.dtype = DType::kI32, .shape = {1000, 8}}}) {
    EXPECT_FALSE(LayoutSample::Applies(spec));
  }
}

TEST(Suspicion, WarnsOnceAndSilencesWhatIsDeclared) {
  for (const bool apart : {true, false}) {
    for (const SuspectCase& each : apart ? Apart() : Together()) {
      const std::string file = MakeFile(TensorsOf(each, apart));
      const auto wrong = CompressFile(file);
      ASSERT_TRUE(wrong.ok()) << wrong.status();
      std::vector<Warning> found = wrong->report.warnings;
      std::erase_if(found,
                    [](const Warning& w) { return w.code == "NO_ROLES"; });
      ASSERT_EQ(found.size(), 1) << each.layout;
      EXPECT_EQ(found[0].code, "LAYOUT_SUSPECT");
      EXPECT_TRUE(absl::EndsWith(found[0].message, each.likely))
          << found[0].message;
      EXPECT_FALSE(found[0].tensor.empty());
      const auto right = CompressFile(file, {.layout = each.layout});
      ASSERT_TRUE(right.ok()) << right.status();
      EXPECT_EQ(right->report.warnings.size(), 0) << each.layout;
    }
  }
}

// Tokens of the last dimension's channels, taken from heads of the sample.
NamedTensor Latents(std::vector<uint64_t> shape) {
  const uint64_t heads = shape.back() / kSampleChannels;
  constexpr uint64_t kRow = kSampleChannels * 2;
  std::string bytes;
  for (uint64_t token = 0; token < kSampleTokens; ++token) {
    for (uint64_t head = 0; head < heads; ++head) {
      const std::string& part = Part(head / kSampleHeads, TensorRole::kKey);
      bytes += part.substr((head % kSampleHeads * kSampleTokens + token) * kRow,
                           kRow);
    }
  }
  return {
      {.name = "kv_cache", .dtype = DType::kBF16, .shape = std::move(shape)},
      bytes};
}

TEST(Suspicion, KnowsLatentsAndLeavesDeclaredOnesAlone) {
  const std::pair<const char*, std::vector<uint64_t>> kCases[] = {
      {"mla", {kSampleTokens, 576}},
      {"paged_mla", {kSamplePages, 16, 576}},
      {"11t(d+r):rope=64", {1, 1, kSampleTokens, 576}}};
  for (const auto& [layout, shape] : kCases) {
    const NamedTensor latents = Latents(shape);
    EXPECT_EQ(Likely(latents), layout);
    const auto right =
        CompressFile(MakeFile({latents}), {.codec = "ecsq", .layout = layout});
    ASSERT_TRUE(right.ok()) << right.status();
    EXPECT_EQ(right->report.warnings.size(), 0) << layout;
  }
}

TEST(Suspicion, LeavesLatentsOfOneHeadAlone) {
  for (const uint64_t channels : {320, 384, 512, 640}) {
    EXPECT_EQ(Likely(Latents({1, 1, kSampleTokens, channels})), "") << channels;
  }
}

// What is declared is worth what the usual layout is.
TEST(Suspicion, DeclaredLayoutsKeepTheRatio) {
  std::vector<NamedTensor> usual;
  for (const auto& [name, bytes] : SampleCache()) {
    usual.push_back(
        {{.name = name,
          .dtype = DType::kBF16,
          .shape = {1, kSampleHeads, kSampleTokens, kSampleChannels}},
         bytes});
  }
  const auto payload = [](const CompressReport& report) {
    uint64_t bytes = 0;
    for (const TensorReport& each : report.tensors) {
      bytes += each.compressed_size;
    }
    return bytes;
  };
  const CompressReport as_usual =
      CompressFile(MakeFile(usual), {.codec = "ecsq"})->report;
  for (const bool apart : {true, false}) {
    for (const SuspectCase& each : apart ? Apart() : Together()) {
      const std::vector<NamedTensor> tensors = TensorsOf(each, apart);
      const auto out = CompressFile(MakeFile(tensors),
                                    {.codec = "ecsq", .layout = each.layout});
      ASSERT_TRUE(out.ok()) << out.status();
      EXPECT_EQ(payload(out->report), payload(as_usual)) << each.layout;
      // With fewer tensors a header is shorter.
      EXPECT_GE(out->report.compression_ratio / as_usual.compression_ratio,
                0.99)
          << each.layout;
    }
  }
}

}  // namespace
}  // namespace kvcompress
