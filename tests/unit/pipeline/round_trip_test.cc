// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// A cache through the whole library: cut anywhere, damaged anywhere, in part.

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iterator>

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

std::string Mixed() {
  return MakeFile({RandomTensor("layer_0_key", DType::kBF16, {1, 2, 65, 64}),
                   RandomTensor("empty", DType::kF32, {0, 4}),
                   RandomTensor("layer_0_value", DType::kF16, {1, 2, 65, 64}),
                   RandomTensor("scalar", DType::kF32, {}),
                   RandomTensor("odd", DType::kF32, {4097}),
                   RandomTensor("last_empty", DType::kF16, {0})},
                  {{"format", "pt"}});
}

TEST(RoundTrip, DecompressionGivesWhatCompressionSaid) {
  const std::string file = Mixed();
  const auto out = CompressFile(file, {.reconstruct = true});
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ(out->report.compressed_size, out->artefact.size());
  EXPECT_EQ(out->report.tensors.size(), 6);
  DecompressReport report;
  const auto restored = DecompressFile(out->artefact, {}, 1 << 20, &report);
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_EQ(*restored, out->reconstructed);
  EXPECT_EQ(restored->size(), file.size());
  EXPECT_EQ(report.output_size, file.size());
  EXPECT_EQ(report.payload_digest, out->report.payload_digest);
  EXPECT_EQ(report.original_size, out->report.original_size);
}

TEST(RoundTrip, DoesNotDependOnChunks) {
  const std::string file = Mixed();
  const Compressed whole = *CompressFile(file, {.reconstruct = true});
  for (size_t chunk : {1, 7, 8, 9, 4095, 4096, 16384, 16385}) {
    const Compressed cut = *CompressFile(file, {.reconstruct = true}, chunk);
    EXPECT_EQ(cut.artefact, whole.artefact) << chunk;
    EXPECT_EQ(cut.report.metrics.rmse, whole.report.metrics.rmse);
    EXPECT_EQ(*DecompressFile(whole.artefact, {}, chunk), whole.reconstructed);
  }
}

TEST(RoundTrip, TheSampleCacheShrinks) {
  std::ifstream stream(KVCOMPRESS_TEST_DATA "/smollm2_kjv_96_bf16.safetensors",
                       std::ios::binary);
  const std::string file((std::istreambuf_iterator<char>(stream)), {});
  const auto out = CompressFile(file);
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_GE(out->report.compression_ratio, 3.7);
  EXPECT_EQ(out->report.tensors.size(), 60);
  EXPECT_EQ(DecompressFile(out->artefact)->size(), file.size());
}

TEST(RoundTrip, AFileWithoutTensors) {
  const auto out = CompressFile(testing::RawFile("{}"));
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ(out->report.elements, 0);
  EXPECT_EQ(out->report.bits_per_value, 0);
  EXPECT_EQ(*DecompressFile(out->artefact), testing::RawFile("{}      "));
}

TEST(RoundTrip, DeclaredTensorsGiveTheSameArtefactAsAFile) {
  const std::vector<NamedTensor> tensors = {
      RandomTensor("layer_0_key", DType::kBF16, {1, 1, 70, 64}),
      RandomTensor("empty", DType::kBF16, {0}),
      RandomTensor("layer_0_value", DType::kF16, {1, 1, 70, 64})};
  const Compressed file =
      *CompressFile(MakeFile(tensors, {{"a", "b"}}), {.reconstruct = true});
  Compressor compressor({.reconstruct = true}, {});
  CompressOutput output;
  ASSERT_TRUE(
      compressor
          .DeclareTensors({tensors[0].spec, tensors[1].spec, tensors[2].spec},
                          {{"a", "b"}}, &output)
          .ok());
  for (size_t i : {0, 2}) {
    ASSERT_TRUE(
        compressor.AppendTensor(tensors[i].spec.name, tensors[i].bytes, &output)
            .ok());
  }
  ASSERT_TRUE(compressor.Finish().ok());
  EXPECT_EQ(compressor.header() + output.artefact, file.artefact);
  EXPECT_EQ(output.reconstructed, file.reconstructed);
}

TEST(RoundTrip, DeclaredTensorsMustComeInOrderAndInSize) {
  const NamedTensor a = RandomTensor("a", DType::kF32, {4});
  const NamedTensor b = RandomTensor("b", DType::kF32, {4});
  const auto refused = [&](absl::string_view name, absl::string_view bytes) {
    Compressor compressor({}, {});
    CompressOutput output;
    EXPECT_TRUE(compressor.DeclareTensors({a.spec, b.spec}, {}, &output).ok());
    const absl::Status status = compressor.AppendTensor(name, bytes, &output);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return GetErrorDetail(status)->reason;
  };
  EXPECT_EQ(refused("b", b.bytes), "WRONG_TENSOR");
  EXPECT_EQ(refused("a", a.bytes + "x"), "CHUNK_TOO_LARGE");
  Compressor twice({}, {});
  CompressOutput output;
  EXPECT_FALSE(twice.DeclareTensors({a.spec, a.spec}, {}, &output).ok());
}

TEST(RoundTrip, DeclaredTensorsAreNotTooLargeTogether) {
  // Each is allowed, two are, and eleven have more than 2^64 bytes.
  constexpr uint64_t kLarge = uint64_t{3} << 57;
  for (const size_t count : {3, 11, 12}) {
    std::vector<TensorSpec> specs(count);
    for (size_t i = 0; i < count; ++i) {
      specs[i] = {.name = std::string(1, static_cast<char>('a' + i)),
                  .dtype = DType::kF32,
                  .shape = {kLarge}};
    }
    Compressor compressor({}, {});
    CompressOutput output;
    const absl::Status status = compressor.DeclareTensors(specs, {}, &output);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(GetErrorDetail(status)->reason, "SHAPE_OVERFLOW") << count;
    EXPECT_EQ(GetErrorDetail(status)->tensor, "c");
  }
}

std::string SmallArtefact(float value) {
  std::vector<float> key(40, value);
  key[1] = 1;
  return CompressFile(
             MakeFile({{{.name = "k", .dtype = DType::kF32, .shape = {40}},
                        F32Bytes(key)},
                       {{.name = "v", .dtype = DType::kF32, .shape = {3}},
                        F32Bytes({value, 2, 3})}},
                      {{"m", "n"}}))
      ->artefact;
}

TEST(Corruption, EveryFlippedBitIsDataLoss) {
  const std::string artefact = SmallArtefact(0.5f);
  ASSERT_TRUE(DecompressFile(artefact).ok());
  for (size_t bit = 0; bit < artefact.size() * 8; ++bit) {
    std::string flipped = artefact;
    flipped[bit / 8] ^= static_cast<char>(1 << bit % 8);
    EXPECT_EQ(DecompressFile(flipped).status().code(),
              absl::StatusCode::kDataLoss)
        << "bit " << bit;
  }
}

TEST(Corruption, EveryTruncationAndAnyTrailingByteIsDataLoss) {
  const std::string artefact = SmallArtefact(0.5f);
  for (size_t size = 0; size < artefact.size(); ++size) {
    const absl::Status status =
        DecompressFile(absl::string_view(artefact).substr(0, size)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << size;
    EXPECT_EQ(GetErrorDetail(status)->reason, "TRUNCATED") << size;
  }
  EXPECT_EQ(GetErrorDetail(DecompressFile(artefact + '\0').status())->reason,
            "TRAILING_BYTES");
}

TEST(Corruption, PayloadsOfAnotherArtefactAreFoundAndNamed) {
  const std::string a = SmallArtefact(0.5f);
  const std::string b = SmallArtefact(0.1f);
  ASSERT_EQ(a.size(), b.size());
  const size_t v_size = 2 + 2;
  const std::string swapped =
      a.substr(0, a.size() - v_size) + b.substr(b.size() - v_size);
  const absl::Status status = DecompressFile(swapped).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(GetErrorDetail(status)->tensor, "v");
  EXPECT_EQ(GetErrorDetail(status)->reason, "PAYLOAD_DAMAGED");
}

TEST(Identity, AMixUpOfTwoValidArtefactsIsDataLoss) {
  const std::string file = MakeFile({RandomTensor("x", DType::kF32, {64})});
  const Compressed out = *CompressFile(file, {.labels = {{"tenant", "a"}}});
  EXPECT_TRUE(
      DecompressFile(out.artefact, {.expected_labels = {{"tenant", "a"}}})
          .ok());
  EXPECT_TRUE(DecompressFile(out.artefact, {.expected_payload_digest =
                                                out.report.payload_digest})
                  .ok());
  for (const DecompressOptions& wrong :
       {DecompressOptions{.expected_labels = {{"tenant", "b"}}},
        DecompressOptions{.expected_labels = {{"model", "a"}}},
        DecompressOptions{.expected_payload_digest = "xxh3-128:0"}}) {
    const absl::Status status = DecompressFile(out.artefact, wrong).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_EQ(GetErrorDetail(status)->reason, "IDENTITY_MISMATCH");
  }
}

TEST(Compress, RefusesACompressedFile) {
  const absl::Status status = CompressFile(SmallArtefact(0.5f)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(GetErrorDetail(status)->reason, "ALREADY_COMPRESSED");
}

TEST(Compress, RefusesWhatIsNotFiniteNamingTensorAndElement) {
  std::vector<float> values(5000, 1.0f);
  values[4321] = NAN;
  const absl::Status status =
      CompressFile(
          MakeFile({RandomTensor("good", DType::kF32, {7}),
                    {{.name = "bad", .shape = {5000}}, F32Bytes(values)}}))
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(GetErrorDetail(status)->tensor, "bad");
  EXPECT_EQ(GetErrorDetail(status)->element, 4321);
}

TEST(Compress, RefusesInputThatIsTooShortTooLongOrOfAnotherType) {
  const std::string file = MakeFile({RandomTensor("x", DType::kF32, {64})});
  const auto reason = [](absl::string_view bytes) {
    const absl::Status status = CompressFile(bytes).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return GetErrorDetail(status)->reason;
  };
  for (size_t size : {0, 5, 8, 9, 100}) {
    EXPECT_EQ(reason(absl::string_view(file).substr(0, size)), "TRUNCATED");
  }
  EXPECT_EQ(reason(file.substr(0, file.size() - 1)), "TRUNCATED");
  EXPECT_EQ(reason(file + "x"), "TRAILING_BYTES");
  // Elements of half a byte.
  EXPECT_EQ(reason(testing::RawFile(
                R"({"i":{"dtype":"F4","shape":[16],"data_offsets":[0,8]}})",
                std::string(8, '\0'))),
            "UNSUPPORTED_DTYPE");
}

TEST(Report, NamesAKeyAsTheWorstTensorWhereOneIsNotExact) {
  // The SNR of the value is lower than that of the key.
  std::string key, value;
  for (int i = 0; i < 64; ++i) {
    key += F32Bytes({100.0f + 0.3f * static_cast<float>(i % 7)});
    value += F32Bytes({i % 8 == 0 ? 7.0f : 0.4f});
  }
  const std::vector<uint64_t> shape = {1, 1, 8, 8};
  const CompressReport report =
      CompressFile(MakeFile({{{.name = "layer_0_value", .shape = shape}, value},
                             {{.name = "layer_0_key", .shape = shape}, key}}))
          ->report;
  ASSERT_TRUE(report.tensors[0].metrics.snr_db);
  ASSERT_TRUE(report.tensors[1].metrics.centred_snr_db);
  EXPECT_LT(*report.tensors[0].metrics.snr_db,
            *report.tensors[1].metrics.snr_db);
  EXPECT_EQ(report.worst_tensor, 1);
}

TEST(Report, NamesTheWorstTensorAndCountsThoseThatFail) {
  const std::string file = MakeFile(
      {{{.name = "exact", .shape = {2}}, F32Bytes({7, 1})},
       {{.name = "poor", .shape = {3}}, F32Bytes({7000, 400, -300})},
       {{.name = "fine", .shape = {3}}, F32Bytes({0.7f, 0.11f, -0.32f})}});
  const CompressReport report = CompressFile(file)->report;
  EXPECT_EQ(report.worst_tensor, 1);
  EXPECT_EQ(report.tensors_failed, 1);
  EXPECT_FALSE(report.tensors[0].metrics.snr_db);
  EXPECT_FALSE(report.verdict.passed);
}

}  // namespace
}  // namespace kvcompress
