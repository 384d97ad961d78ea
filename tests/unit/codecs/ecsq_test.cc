// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/ecsq/ecsq.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "codecs/ecsq_round_trip.h"
#include "kvcompress/error.h"

namespace kvcompress::ecsq_testing {
namespace {

constexpr const char* kPresets[] = {"contract", "high", "max", "0.05,8"};

TEST(Ecsq, ResolvesPresetsAndSteps) {
  EXPECT_EQ(EcsqCodec().Parse("")->text(), "contract");
  for (const char* text :
       {"contract", "high", "max", "0.52,0.52", "8,0.05", "0.1234,1.2"}) {
    EXPECT_EQ(EcsqCodec().Parse(text)->text(), text);
  }
  EXPECT_EQ(EcsqCodec().Parse("1.0,.50")->text(), "1,0.5");
  for (const char* text : {"low", "Max", "0.5", "8.1,1", "0.04,1", "1,1,1", ",",
                           "0.12345,1", "-1,1", "1,"}) {
    EXPECT_EQ(GetErrorDetail(EcsqCodec().Parse(text).status())->field,
              "options.codec")
        << text;
  }
  EXPECT_FALSE(ParseCodec("ecsq:group_size=64").ok());
}

TEST(Ecsq, EveryShapeTypeAndRole) {
  std::vector<std::vector<uint64_t>> shapes = {
      {}, {0}, {1}, {65}, {700, 3}, {2, 40, 8}, {2, 1, 3, 9, 8}, {1, 2, 0, 64}};
  for (const uint64_t tokens : {1, 7, 63, 64, 65, 512, 513}) {
    shapes.push_back({1, 2, tokens, 64});
  }
  for (const uint64_t channels : {1, 2, 80, 96, 128, 256}) {
    shapes.push_back({2, 3, 33, channels});
  }
  shapes.push_back({1, 300, 2, 40});
  shapes.push_back({1, 1, 2, 5000});
  shapes.push_back({1, 2, 4096, 16});
  for (const auto& shape : shapes) {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      for (const TensorRole role :
           {TensorRole::kKey, TensorRole::kValue, TensorRole::kNone}) {
        const TensorSpec spec = Spec(shape, dtype, role);
        const auto values = Cache(spec);
        for (const char* preset : kPresets) {
          // Every step on every shape would take long and show no more.
          if (values.size() > 50000 && preset[0] != 'c') continue;
          const Encoded encoded = RoundTrip(spec, preset, values);
          if (preset[0] == 'c') {
            EXPECT_TRUE(KeepsContract(encoded.metrics));
          }
        }
      }
    }
  }
}

TEST(Ecsq, FindsTheRotation) {
  const TensorSpec spec = Spec({1, 2, 256, 64});
  for (const bool interleaved : {false, true}) {
    const auto keys = RotatedKeys(spec, 500000, interleaved);
    const Encoded found = RoundTrip(spec, "high", keys);
    const Encoded hinted = RoundTrip(spec, "high", keys, {.rope_theta = 5e5});
    const Encoded without = RoundTrip(spec, "high", keys, {.rope_theta = 0});
    EXPECT_EQ(found.payload[1], interleaved ? 8 + 2 + 4 : 8 + 2);
    EXPECT_TRUE(found.payload == hinted.payload);
    EXPECT_EQ(without.payload[1], 8);
    EXPECT_LT(found.metrics.rmse, 0.9 * without.metrics.rmse);
  }
  EXPECT_EQ(RoundTrip(spec, "high", Cache(spec)).payload[1], 8);
}

TEST(Ecsq, TheFirstTokenIsNearlyExact) {
  for (const TensorRole role : {TensorRole::kKey, TensorRole::kValue}) {
    const TensorSpec spec = Spec({1, 2, 200, 64}, DType::kF32, role);
    const Encoded encoded = RoundTrip(spec, "max", Cache(spec));
    ASSERT_TRUE(IsCoded(encoded));
    double first = 0;
    for (size_t i = 0; i < 64; ++i) {
      const double error = encoded.decoded[i] - encoded.source[i];
      first += error * error;
    }
    EXPECT_LT(std::sqrt(first / 64), encoded.metrics.rmse / 5);
  }
}

TEST(Ecsq, ExtremeTensors) {
  for (const DType dtype : NumberDTypes()) {
    for (const TensorRole role : {TensorRole::kKey, TensorRole::kValue}) {
      const TensorSpec spec = Spec({1, 2, 70, 32}, dtype, role);
      const size_t count = *ElementCount(spec);
      const float largest = dtype == DType::kF16 ? 65504 : 0x1.fep127f;
      // What FP8 rounds to 0, or saturates.
      const float tiny = dtype == DType::kF32 ? 1e-45f : 6e-8f;
      std::vector<std::vector<float>> tensors = {
          std::vector<float>(count, 0),       std::vector<float>(count, 3),
          std::vector<float>(count, largest), std::vector<float>(count, tiny),
          std::vector<float>(count, -1e-38f), Cache(spec)};
      tensors.push_back(Cache(spec));
      tensors.back()[777] = largest;
      tensors.back()[4000] = -largest;
      tensors.push_back(Cache(spec));
      tensors.back()[5] = 65504;
      tensors.push_back(Cache(spec));
      for (float& value : tensors.back()) value *= 300;
      tensors.push_back(Cache(spec));
      for (size_t i = 0; i < count; i += 32) tensors.back()[i] = 5;
      for (const auto& values : tensors) {
        for (const char* preset : kPresets) RoundTrip(spec, preset, values);
      }
    }
  }
}

// The inverse of such a norm was infinite, and 0 times that is not a number.
TEST(Ecsq, NormsWithoutAnInverse) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const TensorSpec spec = Spec({1, 2, 70, 32}, dtype, TensorRole::kValue);
    for (const float tiny : {1e-39f, 2e-39f, 5e-39f, 1.2e-38f}) {
      std::vector<float> values(*ElementCount(spec), tiny);
      for (size_t i = 0; i < values.size(); i += 3) values[i] = 0;
      for (const char* preset : kPresets) RoundTrip(spec, preset, values);
    }
  }
}

TEST(Ecsq, WhatBuffersHeldDoesNotMatter) {
  EncoderBuffers buffers;
  for (const uint64_t tokens : {300, 70, 500}) {
    for (const TensorRole role : {TensorRole::kKey, TensorRole::kValue}) {
      const TensorSpec spec = Spec({1, 2, tokens, 32}, DType::kBF16, role);
      const std::vector<float> values = Cache(spec, tokens);
      for (const char* preset : kPresets) {
        const Encoded own = RoundTrip(spec, preset, values);
        const Encoded taken =
            RoundTrip(spec, preset, values, {.buffers = &buffers});
        EXPECT_TRUE(taken.payload == own.payload);
        EXPECT_TRUE(taken.decoded_bytes == own.decoded_bytes);
      }
    }
  }
  EXPECT_FALSE(buffers.values.empty());
}

TEST(Ecsq, ContractPatchesOutliers) {
  for (const TensorRole role : {TensorRole::kKey, TensorRole::kValue}) {
    const TensorSpec spec = Spec({1, 2, 200, 64}, DType::kF32, role);
    auto values = Cache(spec);
    for (const size_t i : {100, 9000, 25599}) values[i] = 1e20f;
    const Encoded encoded = RoundTrip(spec, "contract", values);
    ASSERT_TRUE(IsCoded(encoded));
    EXPECT_TRUE(KeepsContract(encoded.metrics));
    for (const size_t i : {100, 9000, 25599}) {
      EXPECT_EQ(encoded.decoded[i], 1e20f);
    }
    EXPECT_LT(encoded.payload.size(), values.size() * 5 / 8);
  }
}

TEST(Ecsq, SmallStepsFallBackToIntegers) {
  const TensorSpec spec = Spec({1, 2, 64, 64}, DType::kF32);
  auto values = Cache(spec);
  for (float& value : values) value *= 100;
  const Encoded encoded = RoundTrip(spec, "contract", values);
  EXPECT_FALSE(IsCoded(encoded));
  EXPECT_EQ(encoded.payload.size(), 1 + values.size() / 64 * 66);
  EXPECT_GT(*encoded.metrics.snr_db, 40);
}

TEST(Ecsq, LowBitsOfWideChannels) {
  const TensorSpec spec = Spec({1, 1, 300, 64}, DType::kF32);
  auto values = Cache(spec);
  for (size_t i = 0; i < values.size(); i += 64) {
    values[i] *= 500;
    values[i + 7] *= 40;
  }
  const Encoded encoded = RoundTrip(spec, "contract", values);
  ASSERT_TRUE(IsCoded(encoded));
  EXPECT_TRUE(KeepsContract(encoded.metrics));
}

TEST(Ecsq, RefusesWhatIsNotFinite) {
  const TensorSpec spec = Spec({4});
  for (const float bad : {std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()}) {
    std::string payload;
    auto encoder =
        *EcsqCodec().NewEncoder(spec, *EcsqCodec().Parse("high"), {});
    const std::string bytes = Bytes(spec.dtype, {1, 2, bad, 4});
    ASSERT_TRUE(
        encoder->Append(absl::string_view(bytes).substr(0, 3), &payload, {})
            .ok());
    const absl::Status status =
        encoder->Append(absl::string_view(bytes).substr(3), &payload, nullptr);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    const auto detail = GetErrorDetail(status);
    EXPECT_EQ(detail->reason, "NOT_FINITE");
    EXPECT_EQ(detail->tensor, "t");
    EXPECT_EQ(detail->element, 2);
  }
}

}  // namespace
}  // namespace kvcompress::ecsq_testing
