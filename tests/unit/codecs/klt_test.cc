// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/klt/klt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "codecs/klt/format.h"
#include "coding/format.h"
#include "kvcompress/codec.h"
#include "kvcompress/dtype.h"
#include "support/decoding.h"

namespace kvcompress {
namespace {

TensorSpec Spec(std::vector<uint64_t> shape, TensorRole role) {
  return {.name = "t",
          .dtype = DType::kF32,
          .shape = std::move(shape),
          .role = role};
}

// [1, heads, tokens, channels] whose heads move together, but for this much.
std::string JointTensor(const TensorSpec& spec, float alone = 0.1f) {
  const size_t tokens = spec.shape[2];
  const size_t width = spec.shape[1] * spec.shape[3];
  std::mt19937 random(1);
  const auto number = [&] {
    return static_cast<float>(random()) * 0x1p-31f - 1;
  };
  constexpr size_t kFactors = 6;
  std::vector<float> loadings(kFactors * width);
  for (float& loading : loadings) loading = number();
  std::vector<float> values(tokens * width);
  for (size_t t = 0; t < tokens; ++t) {
    float factors[kFactors];
    for (float& factor : factors) factor = 2 * number();
    for (size_t i = 0; i < width; ++i) {
      float value = alone * number() + 0.01f * static_cast<float>(i % 50);
      for (size_t f = 0; f < kFactors; ++f) {
        value += factors[f] * loadings[f * width + i];
      }
      const size_t head = i / spec.shape[3];
      values[(head * tokens + t) * spec.shape[3] + i % spec.shape[3]] = value;
    }
  }
  return std::string(reinterpret_cast<const char*>(values.data()),
                     values.size() * sizeof(float));
}

struct Encoded {
  std::string payload;
  std::string decoded;
  Metrics metrics;
  KeyHints key_hints;
};

Encoded Encode(const TensorSpec& spec, const std::string& source,
               const char* preset, const Codec& codec = KltCodec(),
               const EncodeHints& hints = {}) {
  auto encoder = codec.NewEncoder(spec, *codec.Parse(preset), hints);
  Encoded result;
  EXPECT_EQ((*encoder)->Append(source, &result.payload, &result.decoded),
            absl::OkStatus());
  EXPECT_EQ((*encoder)->Finish(&result.payload, &result.decoded),
            absl::OkStatus());
  result.metrics = (*encoder)->distortion().Compute();
  result.key_hints = (*encoder)->key_hints();
  return result;
}

absl::Status Decode(const TensorSpec& spec, const std::string& payload,
                    size_t chunk, std::string* decoded) {
  auto decoder = KltCodec().NewDecoder(spec, *KltCodec().Parse("high"));
  return testing::DecodeAll(**decoder, payload, decoded, {.chunk = chunk});
}

TEST(Klt, DecodesWhatTheEncoderSaid) {
  for (const TensorRole role :
       {TensorRole::kKey, TensorRole::kValue, TensorRole::kNone}) {
    const TensorSpec spec = Spec({1, 3, 1100, 16}, role);
    const std::string source = JointTensor(spec);
    for (const char* preset : {"contract", "high", "max", "ultra", "1,1,7"}) {
      const Encoded encoded = Encode(spec, source, preset);
      ASSERT_EQ(encoded.payload[0], coding::kModeKlt) << preset;
      for (const size_t chunk :
           {size_t{1}, size_t{1000}, encoded.payload.size()}) {
        std::string decoded;
        ASSERT_EQ(Decode(spec, encoded.payload, chunk, &decoded),
                  absl::OkStatus());
        EXPECT_TRUE(decoded == encoded.decoded) << preset;
      }
    }
  }
}

TEST(Klt, IsMuchSmallerWhereHeadsMoveTogether) {
  const TensorSpec spec = Spec({1, 4, 600, 64}, TensorRole::kKey);
  const std::string source = JointTensor(spec);
  const Encoded joint = Encode(spec, source, "high");
  const Encoded alone =
      Encode(spec, source, "0.6,0.7", *ParseCodec("ecsq")->codec);
  EXPECT_LT(joint.payload.size(), alone.payload.size() * 2 / 3);
  EXPECT_GT(*joint.metrics.snr_db, *alone.metrics.snr_db - 0.5);
}

TEST(Klt, ContractKeepsItsBounds) {
  for (const TensorRole role : {TensorRole::kKey, TensorRole::kValue}) {
    const TensorSpec spec = Spec({1, 4, 600, 32}, role);
    const Metrics metrics = Encode(spec, JointTensor(spec), "contract").metrics;
    EXPECT_LT(metrics.rmse, 0.1);
    EXPECT_LT(metrics.max_error, 0.5);
    EXPECT_GT(*metrics.snr_db, 18);
    EXPECT_GT(metrics.cosine_similarity, 0.99);
  }
}

// Where the counts of reflectors begin in each block.
std::vector<size_t> CountsOfBlocks(const std::string& payload) {
  std::vector<size_t> counts;
  const absl::Span<const uint8_t> bytes(
      reinterpret_cast<const uint8_t*>(payload.data()), payload.size());
  for (size_t at = coding::TensorHeaderSize(bytes); at < payload.size();) {
    counts.push_back(at + coding::BlockHeaderSize(coding::kModeKlt));
    uint32_t size;
    std::memcpy(&size, payload.data() + at, sizeof(size));
    at += size;
  }
  return counts;
}

TEST(Klt, BlocksShareTheirBases) {
  const TensorSpec spec = Spec({1, 2, 2500, 16}, TensorRole::kKey);
  const Encoded encoded = Encode(spec, JointTensor(spec), "high");
  const std::vector<size_t> counts = CountsOfBlocks(encoded.payload);
  ASSERT_EQ(counts.size(), 3);
  EXPECT_NE(static_cast<uint8_t>(encoded.payload[counts[0]]), klt::kSameBasis);
  for (const size_t later : {counts[1], counts[2]}) {
    EXPECT_EQ(static_cast<uint8_t>(encoded.payload[later]), klt::kSameBasis);
  }
  // The last block alone needs the bases of the first.
  auto decoder = KltCodec().NewDecoder(spec, *KltCodec().Parse("high"));
  (*decoder)->set_needed([](uint64_t begin, uint64_t end) {
    const uint64_t last = 2499 * 16;
    return begin <= last && last < end;
  });
  std::string decoded;
  ASSERT_EQ(testing::DecodeAll(**decoder, encoded.payload, &decoded),
            absl::OkStatus());
  const size_t row = size_t{2499} * 16 * sizeof(float);
  EXPECT_EQ(decoded.substr(row, 64), encoded.decoded.substr(row, 64));
}

TEST(Klt, TheFirstBlockHasBases) {
  const TensorSpec spec = Spec({1, 2, 2500, 16}, TensorRole::kKey);
  std::string payload = Encode(spec, JointTensor(spec), "high").payload;
  payload[CountsOfBlocks(payload)[0]] = static_cast<char>(klt::kSameBasis);
  std::string decoded;
  const absl::Status status = Decode(spec, payload, payload.size(), &decoded);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()),
              ::testing::HasSubstr("block 0 of 3, at offset"));
  EXPECT_THAT(std::string(status.message()),
              ::testing::HasSubstr("those of the block before"));
}

TEST(Klt, TakesFewerBitsAtTheBestEffort) {
  // Coarse steps gain nothing by a trellis.
  const TensorSpec coarse = Spec({1, 3, 600, 32}, TensorRole::kKey);
  const std::string tensor = JointTensor(coarse);
  const Encoded best_effort =
      Encode(coarse, tensor, "max", KltCodec(), {.effort = Effort::kBest});
  EXPECT_TRUE(Encode(coarse, tensor, "max").payload == best_effort.payload);
  for (const TensorRole role : {TensorRole::kKey, TensorRole::kValue}) {
    const TensorSpec spec = Spec({1, 3, 1100, 32}, role);
    const std::string source = JointTensor(spec, 2);
    for (const char* preset : {"contract", "high"}) {
      const Encoded best =
          Encode(spec, source, preset, KltCodec(), {.effort = Effort::kBest});
      const Encoded plain = Encode(spec, source, preset);
      EXPECT_LT(best.payload.size(), plain.payload.size()) << preset;
      if (preset == std::string("contract")) {
        // The quality is the same.
        EXPECT_LT(best.payload.size(), plain.payload.size() * 0.97);
        EXPECT_GT(*best.metrics.snr_db, *plain.metrics.snr_db - 0.05);
      }
      for (const size_t chunk : {size_t{777}, best.payload.size()}) {
        std::string decoded;
        ASSERT_EQ(Decode(spec, best.payload, chunk, &decoded),
                  absl::OkStatus());
        EXPECT_TRUE(decoded == best.decoded) << preset;
      }
    }
  }
}

// Mean square of the errors of some tokens.
double ErrorOf(const TensorSpec& spec, const std::string& source,
               const Encoded& encoded, size_t first, size_t count) {
  const size_t width = spec.shape[3];
  double squares = 0;
  for (size_t head = 0; head < spec.shape[1]; ++head) {
    for (size_t i = first * width; i < (first + count) * width; ++i) {
      const size_t at = (head * spec.shape[2] * width + i) * sizeof(float);
      float x;
      float y;
      std::memcpy(&x, source.data() + at, sizeof(x));
      std::memcpy(&y, encoded.decoded.data() + at, sizeof(y));
      squares += static_cast<double>(x - y) * (x - y);
    }
  }
  return squares / static_cast<double>(count * width * spec.shape[1]);
}

TEST(Klt, GivesMoreToTokensThatGetMoreAttention) {
  const TensorSpec spec = Spec({1, 3, 600, 32}, TensorRole::kValue);
  const std::string source = JointTensor(spec);
  EncodeHints hints;
  hints.attention.assign(600, 0);
  std::fill_n(hints.attention.begin() + 100, 50, 4.0f);
  const Encoded encoded =
      Encode(spec, source, "1.25,1.9,96,0.4", KltCodec(), hints);
  EXPECT_LT(2 * ErrorOf(spec, source, encoded, 100, 50),
            ErrorOf(spec, source, encoded, 300, 50));
  EXPECT_EQ(KltCodec()
                .NewEncoder(spec, *KltCodec().Parse("contract"), hints)
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(Klt, KeysTellOfTheAttentionToTheirTokens) {
  const TensorSpec keys = Spec({1, 3, 600, 32}, TensorRole::kKey);
  const Encoded encoded = Encode(keys, JointTensor(keys), "max");
  ASSERT_EQ(encoded.key_hints.attention.size(), 600);
  const TensorSpec values = Spec({1, 3, 600, 32}, TensorRole::kValue);
  EncodeHints hints;
  hints.from_keys.attention = encoded.key_hints.attention;
  const std::string source = JointTensor(values);
  EXPECT_FALSE(Encode(values, source, "max", KltCodec(), hints).payload ==
               Encode(values, source, "max").payload);
}

TEST(Klt, SharpLayersHaveFinerSteps) {
  const TensorSpec keys = Spec({1, 3, 600, 32}, TensorRole::kKey);
  // Steps follow the size of the keys in any case: by this much less here.
  const auto relative_error = [&](const char* preset) {
    const Encoded encoded = Encode(keys, JointTensor(keys, 3), preset);
    return std::sqrt(encoded.metrics.mse);
  };
  EXPECT_LT(1.5 * relative_error("1,1,32,0.3,0.75"),
            relative_error("1,1,32,0.3"));
}

TEST(Klt, ValuesOfSharpLayersHaveTheStepsOfOthers) {
  const TensorSpec values = Spec({1, 3, 600, 32}, TensorRole::kValue);
  EncodeHints hints;
  hints.from_keys.sharpness = 5;
  const std::string source = JointTensor(values);
  EXPECT_TRUE(Encode(values, source, "max", KltCodec(), hints).payload ==
              Encode(values, source, "max").payload);
}

TEST(Klt, ShortKeysTellOfTheirLayerAndHaveItsSteps) {
  const TensorSpec keys = Spec({1, 3, 64, 32}, TensorRole::kKey);
  const std::string source = JointTensor(keys, 3);
  const Encoded sharp = Encode(keys, source, "1,1,32,0.3,0.75");
  ASSERT_TRUE(sharp.key_hints.sharpness.has_value());
  EXPECT_GT(*sharp.key_hints.sharpness, 5);
  EXPECT_NE(sharp.payload[0], coding::kModeKlt);
  EXPECT_LT(3 * sharp.metrics.mse,
            Encode(keys, source, "1,1,32,0.3").metrics.mse);
}

// What becomes of payloads that were damaged, of a tensor of this shape.
void Mutate(std::vector<uint64_t> shape, size_t mutations) {
  const TensorSpec spec = Spec(std::move(shape), TensorRole::kKey);
  const std::string plain = Encode(spec, JointTensor(spec), "high").payload;
  const std::string trellis = Encode(spec, JointTensor(spec), "high",
                                     KltCodec(), {.effort = Effort::kBest})
                                  .payload;
  ASSERT_EQ(plain[0], coding::kModeKlt);
  ASSERT_EQ(trellis[0], coding::kModeKlt);
  std::mt19937 random(2);
  size_t accepted = 0;
  for (size_t i = 0; i < mutations; ++i) {
    std::string bad = i % 3 == 0 ? trellis : plain;
    // Headers and side data more often than quanta.
    const size_t range = i % 2 == 0 ? 300 : bad.size();
    for (size_t n = random() % 3 + 1; n > 0; --n) {
      bad[random() % std::min(range, bad.size())] ^=
          static_cast<char>(1 << random() % 8);
    }
    if (i % 7 == 0) bad.resize(random() % bad.size());
    std::string decoded;
    const absl::Status status = Decode(spec, bad, bad.size() + 1, &decoded);
    accepted += status.ok();
    if (!status.ok()) {
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    }
    EXPECT_LE(decoded.size(), 4 * *ElementCount(spec));
  }
  EXPECT_LT(accepted, mutations / 2);
}

TEST(Klt, MutationsNeitherCrashNorRunAway) { Mutate({1, 2, 200, 16}, 3000); }

TEST(Klt, MutationsOfWideHeadsNeitherCrashNorRunAway) {
  Mutate({1, 1, 264, 512}, 300);
}

TEST(Klt, CutPayloadsOfWideHeadsAreRefused) {
  const TensorSpec spec = Spec({1, 1, 264, 512}, TensorRole::kNone);
  const std::string payload = Encode(spec, JointTensor(spec), "high").payload;
  ASSERT_EQ(payload[0], coding::kModeKlt);
  for (size_t size = 0; size < payload.size(); size += size / 16 + 1) {
    std::string decoded;
    EXPECT_EQ(Decode(spec, payload.substr(0, size), 1000, &decoded).code(),
              absl::StatusCode::kDataLoss)
        << size;
  }
}

}  // namespace
}  // namespace kvcompress
