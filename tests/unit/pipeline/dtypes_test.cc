// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Every element type through every codec, and what is no number with them.

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kvcompress/codec.h"
#include "support/safetensors_file.h"

namespace kvcompress {
namespace {

using testing::Compressed;
using testing::CompressFile;
using testing::DecompressFile;
using testing::MakeFile;
using testing::NamedTensor;

double ValueOf(DType dtype, const char* element) {
  uint64_t bits = 0;
  std::memcpy(&bits, element, DTypeSize(dtype));
  switch (dtype) {
    case DType::kF16:
      return HalfToFloat(static_cast<uint16_t>(bits));
    case DType::kBF16:
      return BFloat16ToFloat(static_cast<uint16_t>(bits));
    case DType::kF8E4M3:
      return F8E4M3ToFloat(static_cast<uint8_t>(bits));
    case DType::kF8E5M2:
      return F8E5M2ToFloat(static_cast<uint8_t>(bits));
    case DType::kF64:
      return std::bit_cast<double>(bits);
    default:
      return std::bit_cast<float>(static_cast<uint32_t>(bits));
  }
}

std::vector<NamedTensor> Numbers(DType dtype) {
  std::vector<NamedTensor> tensors;
  for (const char* name : {"layer_0_key", "layer_0_value"}) {
    TensorSpec spec{.name = name, .dtype = dtype, .shape = {1, 2, 65, 64}};
    std::string bytes = testing::RandomBytes(dtype, *ElementCount(spec), 3);
    if (dtype == DType::kF64) {
      // More digits than binary32 has.
      for (size_t i = 0; i < bytes.size(); i += 8) {
        bytes[i] = static_cast<char>(i / 8 * 37);
      }
    }
    tensors.push_back({std::move(spec), std::move(bytes)});
  }
  return tensors;
}

// A block table, and every other type that is none of numbers, as noise.
std::vector<NamedTensor> Others() {
  std::vector<NamedTensor> tensors;
  std::mt19937 random(7);
  for (const DType dtype : AllDTypes()) {
    if (IsNumber(dtype)) continue;
    TensorSpec spec{.name = absl::StrCat("layer_0_key.", DTypeName(dtype)),
                    .dtype = dtype,
                    .shape = {1, 1, 9, 8},
                    .role = TensorRole::kKey};
    std::string bytes(72 * DTypeSize(dtype), '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    tensors.push_back({std::move(spec), std::move(bytes)});
  }
  return tensors;
}

template <typename Check>
void ForEachChoice(Check check) {
  for (const Codec* codec : AllCodecs()) {
    for (const std::string& parameters : codec->SelfTestParameters()) {
      check(*codec, CodecString(codec->traits().name, parameters));
    }
  }
}

absl::string_view DataOf(absl::string_view file) {
  uint64_t header;
  std::memcpy(&header, file.data(), sizeof(header));
  return file.substr(8 + header);
}

TEST(DTypes, ReportsAreOfTheResultInItsOwnType) {
  ForEachChoice([](const Codec& codec, const std::string& choice) {
    for (const DType dtype : NumberDTypes()) {
      SCOPED_TRACE(absl::StrCat(choice, " ", DTypeName(dtype)));
      const std::string file = MakeFile(Numbers(dtype));
      const auto out =
          CompressFile(file, {.codec = choice, .reconstruct = true});
      ASSERT_TRUE(out.ok()) << out.status();
      EXPECT_EQ(*DecompressFile(out->artefact), out->reconstructed);
      if (codec.traits().lossless) {
        EXPECT_EQ(out->reconstructed, file);
      }
      double squares = 0, most = 0;
      const absl::string_view x = DataOf(file), y = DataOf(out->reconstructed);
      ASSERT_EQ(x.size(), y.size());
      for (size_t i = 0; i < x.size(); i += DTypeSize(dtype)) {
        const double error = ValueOf(dtype, &y[i]) - ValueOf(dtype, &x[i]);
        ASSERT_TRUE(std::isfinite(error));
        squares += error * error;
        most = std::max(most, std::abs(error));
      }
      const Metrics& metrics = out->report.metrics;
      EXPECT_EQ(metrics.max_error, most);
      const double count = static_cast<double>(metrics.elements);
      EXPECT_NEAR(metrics.rmse, std::sqrt(squares / count), 1e-9);
    }
  });
}

TEST(DTypes, WhatIsNoNumberIsKeptAndNotJudged) {
  const std::vector<NamedTensor> others = Others();
  const QualityThresholds strict = {
      .max_rmse = 1e-9, .max_error = 1e-9, .min_snr_db = 300};
  ForEachChoice([&](const Codec& codec, const std::string& choice) {
    if (!codec.stored()) return;  // what no codec holds `auto` refuses
    SCOPED_TRACE(choice);
    const CompressOptions options = {.codec = choice, .thresholds = strict};
    std::vector<NamedTensor> tensors = Numbers(DType::kF8E4M3);
    const auto alone = CompressFile(MakeFile(tensors), options);
    ASSERT_TRUE(alone.ok()) << alone.status();
    tensors.insert(tensors.end(), others.begin(), others.end());
    const auto out = CompressFile(MakeFile(tensors), options);
    ASSERT_TRUE(out.ok()) << out.status();
    EXPECT_EQ(out->report.metrics.elements, alone->report.metrics.elements);
    EXPECT_EQ(out->report.metrics.rmse, alone->report.metrics.rmse);
    EXPECT_EQ(out->report.tensors_failed, alone->report.tensors_failed);
    EXPECT_EQ(out->report.elements,
              alone->report.elements + 72 * others.size());
    const std::string restored = *DecompressFile(out->artefact);
    absl::string_view data = DataOf(restored);
    std::string kept;
    for (const NamedTensor& other : others) kept += other.bytes;
    EXPECT_EQ(data.substr(data.size() - kept.size()), kept);
    for (size_t i = 2; i < tensors.size(); ++i) {
      const TensorReport& report = out->report.tensors[i];
      EXPECT_EQ(report.codec, "lossless");
      EXPECT_TRUE(report.verdict.passed);
      EXPECT_FALSE(report.metrics.snr_db);
      EXPECT_EQ(report.metrics.elements, 72);
    }
  });
}

TEST(DTypes, AutoKeepsThemToo) {
  std::vector<NamedTensor> tensors = Others();
  const auto out = CompressFile(MakeFile(tensors), {.codec = "auto"});
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_TRUE(out->report.verdict.passed);
  EXPECT_EQ(*DecompressFile(out->artefact), MakeFile(tensors));
}

// One-byte elements make the most of a size in bytes: nothing may wrap around.
TEST(DTypes, SizesOfHugeShapesDoNotWrap) {
  for (const Codec* codec : AllCodecs()) {
    for (const DType dtype : codec->traits().dtypes) {
      const uint64_t most = (uint64_t{1} << 62) / DTypeSize(dtype);
      for (const std::vector<uint64_t>& shape :
           {std::vector<uint64_t>{most}, {most / 2, 1, 2, 1}}) {
        const TensorSpec spec = {
            .dtype = dtype, .shape = shape, .role = TensorRole::kKey};
        const auto size = codec->MaxEncodedSize(
            spec, *codec->Parse(codec->SelfTestParameters()[0]));
        ASSERT_TRUE(size.ok()) << size.status();
        EXPECT_GE(*size, most / 16) << codec->traits().name;
        EXPECT_LE(*size, uint64_t{5} << 61) << codec->traits().name;
      }
    }
  }
}

}  // namespace
}  // namespace kvcompress
