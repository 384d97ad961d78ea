// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/ecsq/ecsq.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "codecs/ecsq/rope.h"
#include "codecs/ecsq/tables.h"
#include "digest/digest.h"
#include "kernels/rows.h"
#include "kvcompress/error.h"

namespace kvcompress {
namespace {

constexpr const char* kPresets[] = {"contract", "high", "max", "0.05,8"};

// Numbers that are the same everywhere: sums of uniform ones, with a standard
// deviation of 1.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint32_t Bits() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint32_t>(state_ >> 33);
  }
  float Gaussian() {
    int64_t sum = 0;
    for (int i = 0; i < 12; ++i) sum += Bits() & 0xffff;
    return static_cast<float>(sum - 6 * 0xffff) * 0x1p-16f;
  }

 private:
  uint64_t state_;
};

TensorSpec Spec(std::vector<uint64_t> shape, DType dtype = DType::kBF16,
                TensorRole role = TensorRole::kKey) {
  return {.name = "t", .dtype = dtype, .shape = std::move(shape), .role = role};
}

std::string Bytes(DType dtype, const std::vector<float>& values) {
  std::string bytes;
  for (const float value : values) {
    if (dtype == DType::kF32) {
      bytes.append(reinterpret_cast<const char*>(&value), 4);
    } else {
      const uint16_t bits =
          dtype == DType::kF16 ? FloatToHalf(value) : FloatToBFloat16(value);
      bytes.append(reinterpret_cast<const char*>(&bits), 2);
    }
  }
  return bytes;
}

std::vector<float> Values(DType dtype, absl::string_view bytes) {
  std::vector<float> values(bytes.size() / DTypeSize(dtype));
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t bits;
    if (dtype == DType::kF32) {
      std::memcpy(&values[i], bytes.data() + 4 * i, 4);
    } else {
      std::memcpy(&bits, bytes.data() + 2 * i, 2);
      values[i] =
          dtype == DType::kF16 ? HalfToFloat(bits) : BFloat16ToFloat(bits);
    }
  }
  return values;
}

// A tensor as models have them: channels with means and widths of their own,
// tokens with norms of their own.
std::vector<float> Cache(const TensorSpec& spec, uint64_t seed = 1) {
  Random random(seed);
  const size_t elements = *ElementCount(spec);
  const size_t rank = spec.shape.size();
  const size_t channels = rank > 1 ? spec.shape[rank - 1] : 1;
  std::vector<float> means, widths, values;
  for (size_t c = 0; c < channels; ++c) {
    means.push_back(2 * random.Gaussian());
    widths.push_back(0.1f + std::abs(random.Gaussian()));
  }
  float norm = 1;
  for (size_t i = 0; i < elements; ++i) {
    const size_t c = i % channels;
    if (c == 0 && spec.role == TensorRole::kValue) {
      norm = 0.5f + static_cast<float>(random.Bits() & 0xff) * 0x1p-8f;
    }
    values.push_back(norm * (means[c] + widths[c] * random.Gaussian()));
  }
  return values;
}

// Keys as a model stores them: turned by their position.
std::vector<float> RotatedKeys(const TensorSpec& spec, double theta,
                               bool interleaved) {
  std::vector<float> values = Cache(spec);
  const size_t tokens = spec.shape[2];
  const size_t channels = spec.shape[3];
  const ecsq::Rotation rotation = {.ratio = ecsq::RatioOf(theta, channels / 2),
                                   .interleaved = interleaved};
  ecsq::Rotator rotator;
  for (size_t first = 0; first < values.size(); first += tokens * channels) {
    rotator.Turn(rotation, false, channels / 2, 0, tokens, &values[first]);
  }
  return values;
}

absl::StatusOr<std::string> Decode(const TensorSpec& spec,
                                   absl::string_view payload,
                                   size_t chunk = 1 << 30) {
  std::string decoded;
  auto decoder = *EcsqCodec().NewDecoder(spec, "high");
  while (!payload.empty()) {
    const absl::Status status =
        decoder->Append(payload.substr(0, chunk), &decoded);
    if (!status.ok()) return status;
    payload.remove_prefix(std::min(chunk, payload.size()));
  }
  const absl::Status status = decoder->Finish(&decoded);
  if (!status.ok()) return status;
  return decoded;
}

struct Encoded {
  std::string payload;
  std::vector<float> source;
  std::vector<float> decoded;
  std::string decoded_bytes;
  Metrics metrics;
};

// Encodes, and checks all that holds for every tensor.
Encoded RoundTrip(const TensorSpec& spec, const std::string& preset,
                  const std::vector<float>& values,
                  const EncodeHints& hints = {}) {
  Encoded out;
  const std::string bytes = Bytes(spec.dtype, values);
  auto encoder = *EcsqCodec().NewEncoder(spec, preset, hints);
  EXPECT_TRUE(encoder->Append(bytes, &out.payload, &out.decoded_bytes).ok());
  EXPECT_TRUE(encoder->Finish(&out.payload, &out.decoded_bytes).ok());
  EXPECT_LE(out.payload.size(), *EcsqCodec().MaxEncodedSize(spec, preset));
  EXPECT_EQ(out.decoded_bytes.size(), bytes.size());

  const auto decoded = Decode(spec, out.payload);
  EXPECT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_TRUE(*decoded == out.decoded_bytes);

  out.source = Values(spec.dtype, bytes);
  out.decoded = Values(spec.dtype, out.decoded_bytes);
  out.metrics = encoder->distortion().Compute();
  EXPECT_EQ(out.metrics.elements, out.source.size());
  double largest = 0;
  for (size_t i = 0; i < out.source.size(); ++i) {
    EXPECT_TRUE(std::isfinite(out.decoded[i]));
    largest = std::max<double>(
        largest, std::abs(double{out.decoded[i]} - out.source[i]));
  }
  EXPECT_EQ(out.metrics.max_error, largest);
  return out;
}

bool IsCoded(const Encoded& encoded) { return encoded.payload[0] == 1; }

bool KeepsContract(const Metrics& metrics) {
  return metrics.rmse < 0.10 && metrics.max_error < 0.5 &&
         metrics.snr_db.value_or(99) > 18 && metrics.cosine_similarity > 0.99;
}

TEST(Ecsq, ResolvesPresetsAndSteps) {
  const auto resolve = [](const char* preset) {
    return EcsqCodec().Resolve({.name = "ecsq", .preset = preset});
  };
  EXPECT_EQ(*resolve(""), "contract");
  for (const char* text :
       {"contract", "high", "max", "0.52,0.52", "8,0.05", "0.1234,1.2"}) {
    EXPECT_EQ(*resolve(text), text);
    EXPECT_TRUE(EcsqCodec().MaxEncodedSize(Spec({1}), text).ok());
  }
  for (const char* text :
       {"low", "Max", "0.5", "0.50,0.5", ".5,0.5", "8.1,1", "0.04,1", "1.,1",
        "00.5,1", "1,1,1", "1, 1", ",", "0.12345,1", "-1,1", "1e0,1", "1,"}) {
    EXPECT_EQ(GetErrorDetail(resolve(text).status())->field, "options.preset")
        << text;
    EXPECT_FALSE(EcsqCodec().MaxEncodedSize(Spec({1}), text).ok());
  }
  EXPECT_EQ(
      GetErrorDetail(ResolveCodec({.name = "ecsq", .group_size = 64}).status())
          ->field,
      "options.group_size");
}

TEST(Ecsq, SizeIsBoundedByTheFallback) {
  const auto size = [](std::vector<uint64_t> shape) {
    return *EcsqCodec().MaxEncodedSize(Spec(std::move(shape)), "high");
  };
  EXPECT_EQ(size({0}), 0);
  EXPECT_EQ(size({}), 1 + 3);
  EXPECT_EQ(size({64}), 1 + 66);
  EXPECT_EQ(size({1, 3, 96, 64}), 1 + 18432 + 576);
}

TEST(Ecsq, TablesAreThoseOfTheFormat) {
  const auto digest = [](size_t first) {
    std::string bytes;
    for (size_t table = first; table < first + ecsq::kTables; ++table) {
      for (const uint16_t frequency : ecsq::HalfFrequencies(table)) {
        bytes.append(reinterpret_cast<const char*>(&frequency), 2);
      }
    }
    Digest digest;
    digest.Update(bytes);
    return digest.Hex();
  };
  EXPECT_EQ(digest(0), "4d0c5d821b5af71008e5ac7f156359fa");
  EXPECT_EQ(digest(ecsq::kTables),
            "4dd1d477ddec40d99e1b4dbb3dd7f2fe");  // of klt
}

TEST(Ecsq, SinesAreThoseOfTheMathematicians) {
  for (uint64_t i = 0; i < 4096; ++i) {
    const uint64_t phase = i * 0x0010123456789abc;
    const double angle = static_cast<double>(phase) * 0x1p-64 * 2 * M_PI;
    const kernels::CosSin got = kernels::CosSinOf(phase);
    EXPECT_NEAR(got.cos, std::cos(angle), 4e-8);
    EXPECT_NEAR(got.sin, std::sin(angle), 4e-8);
  }
  for (const size_t pairs : {1, 3, 32, 64}) {
    EXPECT_NEAR(static_cast<double>(ecsq::RatioOf(10000, pairs)) * 0x1p-64,
                std::pow(10000, -1.0 / static_cast<double>(pairs)), 1e-14);
  }
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

TEST(Ecsq, ChunksDoNotMatter) {
  const TensorSpec spec = Spec({1, 2, 1100, 16});
  const Encoded encoded = RoundTrip(spec, "high", Cache(spec));
  ASSERT_TRUE(IsCoded(encoded));
  for (const size_t chunk : {1, 7, 1000}) {
    EXPECT_TRUE(*Decode(spec, encoded.payload, chunk) == encoded.decoded_bytes);
  }
  const std::string bytes = Bytes(spec.dtype, encoded.source);
  std::string payload;
  auto encoder = *EcsqCodec().NewEncoder(spec, "high", {});
  for (size_t i = 0; i < bytes.size(); i += 999) {
    ASSERT_TRUE(
        encoder
            ->Append(absl::string_view(bytes).substr(i, 999), &payload, nullptr)
            .ok());
  }
  ASSERT_TRUE(encoder->Finish(&payload, nullptr).ok());
  EXPECT_TRUE(payload == encoded.payload);
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
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const TensorRole role : {TensorRole::kKey, TensorRole::kValue}) {
      const TensorSpec spec = Spec({1, 2, 70, 32}, dtype, role);
      const size_t count = *ElementCount(spec);
      const float largest = dtype == DType::kF16 ? 65504 : 0x1.fep127f;
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
    auto encoder = *EcsqCodec().NewEncoder(spec, "high", {});
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

std::string HexOf(absl::string_view bytes) {
  Digest digest;
  digest.Update(bytes);
  return digest.Hex();
}

// Compilers, machines and libraries all give these bytes.
TEST(Ecsq, BytesAreTheSameEverywhere) {
  const TensorSpec keys = Spec({1, 3, 150, 64});
  const Encoded key =
      RoundTrip(keys, "contract", RotatedKeys(keys, 10000, false));
  EXPECT_EQ(HexOf(key.payload), "c4f5ec552858426e79aa92238ddccc4c");
  EXPECT_EQ(HexOf(key.decoded_bytes), "1782ca5a5f005614606a1d10f02f128a");
  const TensorSpec values =
      Spec({1, 3, 150, 64}, DType::kF16, TensorRole::kValue);
  const Encoded value = RoundTrip(values, "max", Cache(values));
  EXPECT_EQ(HexOf(value.payload), "fbf2bafb7cec1eadc2665620fb4be05e");
  EXPECT_EQ(HexOf(value.decoded_bytes), "40530eab9d7d6f847a290299fc19a4b7");
}

TEST(Ecsq, EveryCutIsFound) {
  const TensorSpec spec = Spec({1, 2, 40, 24});
  const std::string payload = RoundTrip(spec, "high", Cache(spec)).payload;
  for (size_t size = 0; size < payload.size(); ++size) {
    const auto decoded =
        Decode(spec, absl::string_view(payload).substr(0, size));
    ASSERT_EQ(decoded.status().code(), absl::StatusCode::kDataLoss) << size;
  }
  const auto longer = Decode(spec, payload + '\0');
  EXPECT_EQ(longer.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(GetErrorDetail(longer.status())->reason, "PAYLOAD_DAMAGED");
  EXPECT_EQ(GetErrorDetail(longer.status())->tensor, "t");
}

// What a digest would have caught, had nobody fixed it up.
TEST(Ecsq, MutationsNeitherCrashNorRunAway) {
  for (const auto& [role, preset] : {std::pair{TensorRole::kKey, "contract"},
                                     std::pair{TensorRole::kValue, "max"},
                                     std::pair{TensorRole::kNone, "0.05,8"}}) {
    const TensorSpec spec = Spec({1, 2, 40, 24}, DType::kF32, role);
    auto values = Cache(spec);
    values[1000] = 2000;
    const std::string good = RoundTrip(spec, preset, values).payload;
    Random random(7);
    size_t accepted = 0;
    constexpr size_t kMutations = 4000;
    for (size_t i = 0; i < kMutations; ++i) {
      std::string bad = good;
      for (uint32_t n = random.Bits() % 3 + 1; n > 0; --n) {
        // The headers, as often as the rest.
        const size_t range = random.Bits() % 2 ? bad.size() : 60;
        bad[random.Bits() % std::min(range, bad.size())] =
            static_cast<char>(random.Bits());
      }
      if (random.Bits() % 8 == 0) bad.resize(random.Bits() % bad.size());
      const auto decoded = Decode(spec, bad);
      if (decoded.ok()) {
        ++accepted;
        ASSERT_EQ(decoded->size(), values.size() * 4);
        for (const float value : Values(spec.dtype, *decoded)) {
          ASSERT_TRUE(std::isfinite(value));
        }
      } else {
        ASSERT_EQ(decoded.status().code(), absl::StatusCode::kDataLoss);
      }
    }
    EXPECT_LT(accepted, kMutations / 2);
  }
}

// A shape that no payload of this size can fill costs no memory.
TEST(Ecsq, HugeShapesCostNothing) {
  const TensorSpec spec = Spec({1 << 10, 1 << 10, 1 << 20, 64});
  const std::string payload =
      RoundTrip(Spec({1, 1, 512, 64}), "high", Cache(Spec({1, 1, 512, 64})))
          .payload;
  EXPECT_EQ(Decode(spec, payload).status().code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace kvcompress
