// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/lossless/lossless.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "kvcompress/error.h"
#include "support/decoding.h"

namespace kvcompress {
namespace {

template <typename T>
std::string Bytes(const std::vector<T>& elements) {
  std::string bytes(elements.size() * sizeof(T), '\0');
  if (!elements.empty()) {
    std::memcpy(bytes.data(), elements.data(), bytes.size());
  }
  return bytes;
}

TensorSpec Spec(DType dtype, size_t bytes) {
  return {.name = "t", .dtype = dtype, .shape = {bytes / DTypeSize(dtype)}};
}

struct EncodedPlanes {
  std::string payload;
  Metrics metrics;
};

EncodedPlanes Encode(DType dtype, absl::string_view bytes,
                     size_t chunk = 1 << 30) {
  EncodedPlanes out;
  std::string decoded;
  const TensorSpec spec = Spec(dtype, bytes.size());
  auto encoder = *LosslessCodec().NewEncoder(spec, CodecParameters(), {});
  for (size_t i = 0; i < bytes.size(); i += chunk) {
    EXPECT_TRUE(
        encoder->Append(bytes.substr(i, chunk), &out.payload, &decoded).ok());
  }
  EXPECT_TRUE(encoder->Finish(&out.payload, &decoded).ok());
  EXPECT_EQ(decoded, bytes);
  EXPECT_LE(out.payload.size(),
            *LosslessCodec().MaxEncodedSize(spec, CodecParameters()));
  out.metrics = encoder->distortion().Compute();
  EXPECT_EQ(out.metrics.elements, spec.shape[0]);
  return out;
}

absl::StatusOr<std::string> Decode(DType dtype, size_t elements,
                                   absl::string_view payload,
                                   size_t chunk = 1 << 30) {
  auto decoder = *LosslessCodec().NewDecoder(
      Spec(dtype, elements * DTypeSize(dtype)), CodecParameters());
  std::string decoded;
  const absl::Status status =
      testing::DecodeAll(*decoder, payload, &decoded, {.chunk = chunk});
  if (!status.ok()) return status;
  return decoded;
}

void ExpectDamaged(const absl::Status& status) {
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  const auto detail = GetErrorDetail(status);
  ASSERT_TRUE(detail);
  EXPECT_EQ(detail->reason, "PAYLOAD_DAMAGED");
  EXPECT_EQ(detail->tensor, "t");
}

// Normally distributed, rounded to bfloat16.
std::vector<uint16_t> BFloat16s(size_t count) {
  std::mt19937 random(4);
  std::normal_distribution<float> normal;
  std::vector<uint16_t> elements(count);
  for (uint16_t& each : elements) each = FloatToBFloat16(normal(random));
  return elements;
}

TEST(Lossless, KeepsEveryBitPatternOf16Bits) {
  std::vector<uint16_t> all(65536 + 77);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  for (DType dtype : AllDTypes()) {
    // Of wider types the upper bits; of bytes, pairs.
    const size_t size = DTypeSize(dtype);
    std::string bytes;
    for (const uint16_t each : all) {
      std::string element(std::max<size_t>(size, 2), '\0');
      std::memcpy(element.data() + element.size() - 2, &each, sizeof(each));
      bytes += element;
    }
    const EncodedPlanes encoded = Encode(dtype, bytes);
    EXPECT_EQ(*Decode(dtype, bytes.size() / size, encoded.payload), bytes);
  }
}

TEST(Lossless, KeepsNoiseAndStoresItRaw) {
  std::mt19937 random(2);
  for (DType dtype : AllDTypes()) {
    for (size_t count : {0, 1, 2, 3, 15, 65535, 65536, 65537, 140000}) {
      std::string bytes(count * DTypeSize(dtype), '\0');
      for (char& byte : bytes) byte = static_cast<char>(random());
      const EncodedPlanes encoded = Encode(dtype, bytes);
      EXPECT_EQ(*Decode(dtype, count, encoded.payload), bytes);
      if (count > 3) {
        EXPECT_EQ(encoded.payload.size(),
                  *LosslessCodec().MaxEncodedSize(Spec(dtype, bytes.size()),
                                                  CodecParameters()));
      }
    }
  }
}

TEST(Lossless, SizeBoundIsExactArithmetic) {
  const auto most = [](DType dtype, std::vector<uint64_t> shape) {
    return *LosslessCodec().MaxEncodedSize(
        {.dtype = dtype, .shape = std::move(shape)}, CodecParameters());
  };
  EXPECT_EQ(most(DType::kBF16, {0}), 0);
  EXPECT_EQ(most(DType::kBF16, {}), 10);
  EXPECT_EQ(most(DType::kF32, {}), 20);
  EXPECT_EQ(most(DType::kF16, {65536}), 131080);
  EXPECT_EQ(most(DType::kF32, {65537}), 4 * 65537 + 32);
  EXPECT_EQ(most(DType::kF32, {uint64_t{1} << 60}),
            (uint64_t{1} << 62) + (uint64_t{1} << 44) * 16);
  EXPECT_EQ(most(DType::kF8E4M3, {65537}), 65537 + 8);
  EXPECT_EQ(most(DType::kI64, {3}), 8 * 3 + 32);
  EXPECT_FALSE(LosslessCodec().Parse("64").ok());
}

TEST(Lossless, CodesExponentsOnly) {
  const std::vector<uint16_t> elements = BFloat16s(100000);
  const std::string bytes = Bytes(elements);
  const EncodedPlanes encoded = Encode(DType::kBF16, bytes);
  EXPECT_LT(encoded.payload.size() * 1.45, bytes.size());
  EXPECT_EQ(*Decode(DType::kBF16, elements.size(), encoded.payload), bytes);
}

TEST(Lossless, WidenedF32CostsWhatTheNarrowTensorCosts) {
  const std::vector<uint16_t> elements = BFloat16s(100000);
  std::vector<uint32_t> wide;
  for (uint16_t bits : elements) wide.push_back(uint32_t{bits} << 16);
  const size_t narrow = Encode(DType::kBF16, Bytes(elements)).payload.size();
  const std::string payload = Encode(DType::kF32, Bytes(wide)).payload;
  EXPECT_EQ(payload.size(), narrow + 2 * (8 + 2));
  EXPECT_EQ(*Decode(DType::kF32, wide.size(), payload), Bytes(wide));

  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  std::vector<uint16_t> half(100000);
  std::vector<float> wide_half;
  for (uint16_t& each : half) {
    each = FloatToHalf(normal(random));
    wide_half.push_back(HalfToFloat(each));
  }
  const size_t narrow_half = Encode(DType::kF16, Bytes(half)).payload.size();
  EXPECT_LT(Encode(DType::kF32, Bytes(wide_half)).payload.size(),
            narrow_half * 1.01);
}

TEST(Lossless, DoesNotDependOnChunks) {
  const std::string bytes = Bytes(BFloat16s(70000));
  const std::string payload = Encode(DType::kBF16, bytes).payload;
  for (size_t chunk : {1, 7, 4096, 65537, 131072, 131073}) {
    EXPECT_EQ(Encode(DType::kBF16, bytes, chunk).payload, payload) << chunk;
    EXPECT_EQ(*Decode(DType::kBF16, 70000, payload, chunk), bytes) << chunk;
  }
}

TEST(Lossless, NeverBecomesMoreThan64TimesAsLarge) {
  for (DType dtype : AllDTypes()) {
    const std::string zeros(1000000 * DTypeSize(dtype), '\0');
    const EncodedPlanes encoded = Encode(dtype, zeros);
    EXPECT_GE(encoded.payload.size() * 64, zeros.size());
    EXPECT_EQ(*Decode(dtype, 1000000, encoded.payload), zeros);
  }
}

TEST(Lossless, MetricsAreThoseOfAnExactCopy) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const std::vector<float>& values :
       {std::vector<float>{}, {1, -2}, {NAN, inf, -inf, -0.0f}, {3e38f, NAN}}) {
    const Metrics metrics = Encode(DType::kF32, Bytes(values)).metrics;
    EXPECT_EQ(metrics.rmse, 0);
    EXPECT_EQ(metrics.mae, 0);
    EXPECT_EQ(metrics.max_error, 0);
    EXPECT_EQ(metrics.cosine_similarity, 1);
    EXPECT_FALSE(metrics.snr_db);
    EXPECT_FALSE(metrics.psnr_db);
  }
}

TEST(Lossless, SumsLeaveOutWhatIsNotFinite) {
  // Pooled with a block in error, the sums show.
  const auto snr = [](DType dtype, const std::string& bytes) {
    auto encoder = *LosslessCodec().NewEncoder(Spec(dtype, bytes.size()),
                                               CodecParameters(), {});
    std::string payload;
    EXPECT_TRUE(encoder->Append(bytes, &payload, nullptr).ok());
    DistortionAccumulator pooled;
    pooled.Merge(encoder->distortion());
    pooled.Add({.count = 1, .sum_e2 = 1, .max_abs_e = 1});
    const Metrics metrics = pooled.Compute();
    EXPECT_EQ(metrics.elements, bytes.size() / DTypeSize(dtype) + 1);
    EXPECT_NEAR(*metrics.psnr_db, 20 * std::log10(16 / metrics.rmse), 1e-12);
    return *metrics.snr_db;
  };
  const double expected = 10 * std::log10(256.25);
  EXPECT_NEAR(snr(DType::kF32, Bytes<uint32_t>({0xc1800000, 0x3f000000,
                                                0x7fc00001, 0xff800000})),
              expected, 1e-12);
  EXPECT_NEAR(snr(DType::kF16,
                  Bytes<uint16_t>({0xcc00, 0x3800, 0x7e01, 0xfc00, 0x8000})),
              expected, 1e-12);
  EXPECT_NEAR(
      snr(DType::kBF16, Bytes<uint16_t>({0xc180, 0x3f00, 0x7fc1, 0xff80})),
      expected, 1e-12);
}

TEST(LosslessDamage, EveryFlippedBitIsFoundOrChangesWhatIsRead) {
  std::string bytes = Bytes(BFloat16s(300));
  const std::string payload = Encode(DType::kBF16, bytes).payload;
  ASSERT_LT(payload.size(), bytes.size());
  for (size_t bit = 0; bit < payload.size() * 8; ++bit) {
    std::string flipped = payload;
    flipped[bit / 8] ^= static_cast<char>(1 << bit % 8);
    const auto decoded = Decode(DType::kBF16, 300, flipped);
    if (!decoded.ok()) {
      ExpectDamaged(decoded.status());
    } else {
      EXPECT_NE(*decoded, bytes) << bit;
    }
  }
}

TEST(LosslessDamage, CutsAndWhatFollows) {
  const std::string payload =
      Encode(DType::kBF16, Bytes(BFloat16s(300))).payload;
  for (size_t size = 0; size < payload.size(); ++size) {
    ExpectDamaged(Decode(DType::kBF16, 300, payload.substr(0, size)).status());
  }
  ExpectDamaged(Decode(DType::kBF16, 300, payload + '\0').status());
  ExpectDamaged(Decode(DType::kBF16, 0, "x").status());
}

TEST(LosslessDamage, SizesThatBreakTheFormat) {
  const auto decode = [](std::vector<uint32_t> sizes, std::string rest) {
    return Decode(DType::kF16, 100, Bytes(sizes) + rest).status();
  };
  EXPECT_TRUE(decode({1, 100}, std::string(101, 'x')).ok());
  for (const std::vector<uint32_t>& sizes : {std::vector<uint32_t>{0, 100},
                                             {1, 101},
                                             {101, 1},
                                             {1, 0xffffffff},
                                             {0x80000000, 100},
                                             {2, 100},
                                             {99, 1}}) {
    ExpectDamaged(decode(sizes, std::string(300, 'x')));
  }
}

TEST(LosslessDamage, ZerosAtTheEndOfABlockThatAreNot) {
  const std::string zeros(2 * 1000, '\0');
  std::string payload = Encode(DType::kF16, zeros).payload;
  ASSERT_EQ(payload.size(), 63);
  EXPECT_EQ(*Decode(DType::kF16, 1000, payload), zeros);
  payload.back() = 1;
  const absl::Status status = Decode(DType::kF16, 1000, payload).status();
  ExpectDamaged(status);
  EXPECT_THAT(std::string(status.message()),
              ::testing::HasSubstr("the block of element 0: the padding after "
                                   "the planes is not zero"));
}

TEST(LosslessDamage, AHugeShapeTakesNoMemory) {
  const uint64_t huge = uint64_t{1} << 60;
  ExpectDamaged(Decode(DType::kF32, huge, std::string(1000, 'x')).status());
  ExpectDamaged(Decode(DType::kF32, huge, "").status());
}

TEST(Lossless, TakesNeitherGroupsNorPresets) {
  EXPECT_EQ(ParseCodec("lossless")->ToString(), "lossless");
  for (const char* text : {"lossless:group_size=64", "lossless:64",
                           "lossless:max", "lossless:sparsity=0.5"}) {
    EXPECT_EQ(ParseCodec(text).status().code(),
              absl::StatusCode::kInvalidArgument)
        << text;
  }
}

}  // namespace
}  // namespace kvcompress
