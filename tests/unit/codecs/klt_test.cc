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

#include "codecs/klt/basis.h"
#include "codecs/klt/format.h"
#include "codecs/klt/preset.h"
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

// [1, heads, tokens, channels] whose heads move together.
std::string JointTensor(const TensorSpec& spec) {
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
      float value = 0.1f * number() + 0.01f * static_cast<float>(i % 50);
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
};

Encoded Encode(const TensorSpec& spec, const std::string& source,
               const char* preset, const Codec& codec = KltCodec()) {
  auto encoder = codec.NewEncoder(spec, preset, EncodeHints());
  Encoded result;
  EXPECT_EQ((*encoder)->Append(source, &result.payload, &result.decoded),
            absl::OkStatus());
  EXPECT_EQ((*encoder)->Finish(&result.payload, &result.decoded),
            absl::OkStatus());
  result.metrics = (*encoder)->distortion().Compute();
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
        EXPECT_EQ(decoded, encoded.decoded) << preset;
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

TEST(Klt, MutationsNeitherCrashNorRunAway) {
  const TensorSpec spec = Spec({1, 2, 200, 16}, TensorRole::kKey);
  const std::string good = Encode(spec, JointTensor(spec), "high").payload;
  ASSERT_EQ(good[0], klt::kModeJoint);
  std::mt19937 random(2);
  constexpr size_t kMutations = 3000;
  size_t accepted = 0;
  for (size_t i = 0; i < kMutations; ++i) {
    std::string bad = good;
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
  const std::vector<int8_t> offsets = klt::OffsetsOf(preset, 1000, {});
  EXPECT_TRUE(std::is_sorted(offsets.begin(), offsets.end()));
  EXPECT_GE(offsets.front(), -2);  // half an octave coarser
  EXPECT_LE(offsets.back(), 8);    // two octaves finer
  EXPECT_GT(offsets.back(), 4);
  const klt::Preset plain = *klt::ParsePreset("high");
  EXPECT_EQ(klt::OffsetsOf(plain, 3, {}), std::vector<int8_t>(3));
}

TEST(StepFactor, HalvesFourTimesAnOctave) {
  for (int offset = klt::kLeastOffset; offset <= klt::kMostOffset; ++offset) {
    EXPECT_NEAR(klt::StepFactor(offset) / std::exp2(-offset / 4.0), 1, 1e-7);
  }
}

}  // namespace
}  // namespace kvcompress
