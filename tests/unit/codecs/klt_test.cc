// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/klt/klt.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "codecs/ecsq/tables.h"
#include "codecs/klt/basis.h"
#include "codecs/klt/format.h"
#include "codecs/klt/preset.h"
#include "codecs/klt/trellis.h"
#include "codecs/klt/weights.h"
#include "kvcompress/codec.h"
#include "kvcompress/dtype.h"

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
  std::vector<float> attention;
};

Encoded Encode(const TensorSpec& spec, const std::string& source,
               const char* preset, const Codec& codec = KltCodec(),
               const EncodeHints& hints = {}) {
  auto encoder = codec.NewEncoder(spec, preset, hints);
  Encoded result;
  EXPECT_EQ((*encoder)->Append(source, &result.payload, &result.decoded),
            absl::OkStatus());
  EXPECT_EQ((*encoder)->Finish(&result.payload, &result.decoded),
            absl::OkStatus());
  result.metrics = (*encoder)->distortion().Compute();
  result.attention.assign((*encoder)->attention().begin(),
                          (*encoder)->attention().end());
  return result;
}

absl::Status Decode(const TensorSpec& spec, const std::string& payload,
                    size_t chunk, std::string* decoded) {
  auto decoder = KltCodec().NewDecoder(spec, "high");
  for (size_t i = 0; i < payload.size(); i += chunk) {
    absl::Status status = (*decoder)->Append(
        absl::string_view(payload).substr(i, chunk), decoded);
    if (!status.ok()) return status;
  }
  return (*decoder)->Finish(decoded);
}

TEST(Klt, DecodesWhatTheEncoderSaid) {
  for (const TensorRole role :
       {TensorRole::kKey, TensorRole::kValue, TensorRole::kNone}) {
    const TensorSpec spec = Spec({1, 3, 1100, 16}, role);
    const std::string source = JointTensor(spec);
    for (const char* preset : {"contract", "high", "max", "ultra", "1,1,7"}) {
      const Encoded encoded = Encode(spec, source, preset);
      ASSERT_EQ(encoded.payload[0], klt::kModeJoint) << preset;
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
      Encode(spec, source, "0.6,0.7", *ResolveCodec({.name = "ecsq"})->codec);
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
  for (size_t at = klt::TensorHeaderSize(bytes); at < payload.size();) {
    counts.push_back(at + klt::kBlockHeaderSize);
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
  auto decoder = KltCodec().NewDecoder(spec, "high");
  (*decoder)->set_needed([](uint64_t begin, uint64_t end) {
    const uint64_t last = 2499 * 16;
    return begin <= last && last < end;
  });
  std::string decoded;
  ASSERT_EQ((*decoder)->Append(encoded.payload, &decoded), absl::OkStatus());
  ASSERT_EQ((*decoder)->Finish(&decoded), absl::OkStatus());
  const size_t row = size_t{2499} * 16 * sizeof(float);
  EXPECT_EQ(decoded.substr(row, 64), encoded.decoded.substr(row, 64));
}

TEST(Klt, TheFirstBlockHasBases) {
  const TensorSpec spec = Spec({1, 2, 2500, 16}, TensorRole::kKey);
  std::string payload = Encode(spec, JointTensor(spec), "high").payload;
  payload[CountsOfBlocks(payload)[0]] = static_cast<char>(klt::kSameBasis);
  std::string decoded;
  EXPECT_EQ(Decode(spec, payload, payload.size(), &decoded).code(),
            absl::StatusCode::kDataLoss);
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
  const Encoded encoded = Encode(spec, source, "max", KltCodec(), hints);
  EXPECT_LT(2 * ErrorOf(spec, source, encoded, 100, 50),
            ErrorOf(spec, source, encoded, 300, 50));
  EXPECT_EQ(KltCodec().NewEncoder(spec, "contract", hints).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(Klt, KeysTellOfTheAttentionToTheirTokens) {
  const TensorSpec keys = Spec({1, 3, 600, 32}, TensorRole::kKey);
  const Encoded encoded = Encode(keys, JointTensor(keys), "max");
  ASSERT_EQ(encoded.attention.size(), 600);
  const TensorSpec values = Spec({1, 3, 600, 32}, TensorRole::kValue);
  EncodeHints hints;
  hints.attention_from_keys = encoded.attention;
  const std::string source = JointTensor(values);
  EXPECT_FALSE(Encode(values, source, "max", KltCodec(), hints).payload ==
               Encode(values, source, "max").payload);
}

TEST(Trellis, MovesAsTheFormatSays) {
  // 4 l + 2 (h xor p) + (l xor m).
  EXPECT_EQ(klt::NextState(0, 0), 0);
  EXPECT_EQ(klt::NextState(0, -3), 2);
  EXPECT_EQ(klt::NextState(2, 0), 1);
  EXPECT_EQ(klt::NextState(1, 1), 7);
  EXPECT_EQ(klt::NextState(7, 5), 4);
  for (int quantum = -5; quantum <= 5; ++quantum) {
    for (const bool odd : {false, true}) {
      EXPECT_EQ(klt::QuantumOf(klt::LevelOf(quantum, odd), odd), quantum);
    }
  }
  EXPECT_EQ(klt::LevelOf(-2, true), -3);
  EXPECT_EQ(klt::LevelOf(-2, false), -4);
}

// What the encoder chooses costs no more than any other sequence.
TEST(Trellis, FindsTheCheapestSequence) {
  std::mt19937 random(5);
  for (int round = 0; round < 50; ++round) {
    constexpr size_t kTokens = 5;
    constexpr float kWeight = 0.05f;
    const int klass = 10 + round % 12;
    std::vector<klt::TrellisInput> input(kTokens);
    for (klt::TrellisInput& each : input) {
      each = {.exact = static_cast<float>(random()) * 0x1p-30f - 2,
              .klass = klass,
              .error_per_bit = kWeight};
    }
    const auto cost = [&](const std::vector<int32_t>& quanta) {
      double sum = 0;
      uint8_t state = 0;
      for (size_t t = 0; t < kTokens; ++t) {
        const bool odd = klt::IsOddState(state);
        const double error =
            input[t].exact - 0.5 * klt::LevelOf(quanta[t], odd);
        sum += error * error;
        sum += kWeight / 256 *
               ecsq::GetTables().Cost(
                   klt::TableOf(ecsq::SplitClass(klass), odd), quanta[t]);
        state = klt::NextState(state, quanta[t]);
      }
      return sum;
    };
    std::vector<int32_t> found(kTokens);
    klt::TrellisEncoder().Quantize(input, found.data());
    std::vector<int32_t> quanta(kTokens, -3);
    double least = 1e9;
    while (true) {
      least = std::min(least, cost(quanta));
      size_t t = 0;
      while (t < kTokens && ++quanta[t] > 3) quanta[t++] = -3;
      if (t == kTokens) break;
    }
    EXPECT_LT(cost(found), least + 1e-3) << round;
  }
}

TEST(Klt, MutationsNeitherCrashNorRunAway) {
  const TensorSpec spec = Spec({1, 2, 200, 16}, TensorRole::kKey);
  const std::string plain = Encode(spec, JointTensor(spec), "high").payload;
  const std::string trellis = Encode(spec, JointTensor(spec), "high",
                                     KltCodec(), {.effort = Effort::kBest})
                                  .payload;
  ASSERT_EQ(plain[0], klt::kModeJoint);
  ASSERT_EQ(trellis[0], klt::kModeJoint);
  std::mt19937 random(2);
  constexpr size_t kMutations = 3000;
  size_t accepted = 0;
  for (size_t i = 0; i < kMutations; ++i) {
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
    EXPECT_LE(decoded.size(), 4 * 2 * 200 * 16);
  }
  EXPECT_LT(accepted, kMutations / 2);
}

// Lengths of the rows of a matrix that should be orthogonal, and products.
void ExpectOrthogonal(const klt::Matrix& matrix, const std::string& what) {
  const size_t n = matrix.size();
  for (size_t a = 0; a < n; a += 5) {
    for (size_t b = a; b < n; b += 7) {
      double product = 0;
      for (size_t i = 0; i < n; ++i) {
        product += 1.0 * matrix.at(a, i) * matrix.at(b, i);
      }
      product *= 0x1p-28;
      EXPECT_NEAR(product, a == b ? 1 : 0, 0.01)
          << what << " " << a << " " << b;
    }
  }
}

TEST(Basis, IsOrthogonalWhateverTheIntegers) {
  constexpr size_t kSize = 256;
  std::mt19937 random(3);
  const auto make = [&](const auto& integer) {
    klt::Reflectors reflectors(kSize);
    while (reflectors.count() < klt::kMaxVectors) {
      std::vector<int32_t> integers(reflectors.NextLength());
      for (size_t i = 0; i < integers.size(); ++i) {
        integers[i] = integer(reflectors.count(), i);
      }
      reflectors.Append(integers);
    }
    return klt::MakeMatrix(reflectors);
  };
  ExpectOrthogonal(make([](size_t, size_t) { return 0; }), "zero");
  ExpectOrthogonal(make([](size_t, size_t) { return 32767; }), "largest");
  ExpectOrthogonal(make([](size_t, size_t) { return -32767; }), "least");
  ExpectOrthogonal(
      make([](size_t, size_t i) { return i % 2 ? 32767 : -32767; }),
      "alternating");
  ExpectOrthogonal(make([](size_t, size_t i) { return i == 0 ? 1 : 0; }),
                   "first axis");
  ExpectOrthogonal(make([](size_t j, size_t i) { return i == j ? 32767 : 0; }),
                   "one");
  ExpectOrthogonal(make([](size_t, size_t i) { return i == 9 ? 1 : 32767; }),
                   "all but one");
  ExpectOrthogonal(make([&](size_t, size_t) {
                     return static_cast<int32_t>(random() % 65535) - 32767;
                   }),
                   "random");
  ExpectOrthogonal(make([&](size_t, size_t) {
                     return static_cast<int32_t>(random() % 3) - 1;
                   }),
                   "small");
}

TEST(Basis, ReflectsTheFirstReflectorToAnAxis) {
  klt::Reflectors reflectors(3);
  reflectors.Append({3, 4, 0});
  const klt::Matrix matrix = klt::MakeMatrix(reflectors);
  // The direction of (3, 4, 0), turned round.
  EXPECT_NEAR(matrix.at(0, 0), -0.6 * 16384, 2);
  EXPECT_NEAR(matrix.at(0, 1), -0.8 * 16384, 2);
  EXPECT_EQ(matrix.at(0, 2), 0);
  EXPECT_EQ(matrix.at(2, 2), 16384);
}

TEST(Weights, OlderTokensHaveCoarserSteps) {
  const klt::Preset preset = *klt::ParsePreset("max");
  const std::vector<int8_t> offsets =
      klt::OffsetsOf(preset, klt::AttentionOf(1000, {}));
  EXPECT_TRUE(std::is_sorted(offsets.begin(), offsets.end()));
  EXPECT_GE(offsets.front(), -2);  // half an octave coarser
  EXPECT_LE(offsets.back(), 8);    // two octaves finer
  EXPECT_GT(offsets.back(), 4);
  const klt::Preset plain = *klt::ParsePreset("high");
  EXPECT_EQ(klt::OffsetsOf(plain, klt::AttentionOf(3, {})),
            std::vector<int8_t>(3));
}

TEST(StepFactor, HalvesFourTimesAnOctave) {
  for (int offset = klt::kLeastOffset; offset <= klt::kMostOffset; ++offset) {
    EXPECT_NEAR(klt::StepFactor(offset) / std::exp2(-offset / 4.0), 1, 1e-7);
  }
}

}  // namespace
}  // namespace kvcompress
