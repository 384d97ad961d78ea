// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Tensors for the tests of ecsq, and a round trip that checks what holds for
// every one of them.

#ifndef KVCOMPRESS_TESTS_UNIT_CODECS_ECSQ_ROUND_TRIP_H_
#define KVCOMPRESS_TESTS_UNIT_CODECS_ECSQ_ROUND_TRIP_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "codecs/ecsq/ecsq.h"
#include "kernels/elements.h"
#include "kvcompress/codec.h"
#include "kvcompress/dtype.h"
#include "kvcompress/metrics.h"
#include "kvcompress/tensor.h"
#include "quantization/rope.h"
#include "support/decoding.h"

namespace kvcompress::ecsq_testing {

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

inline TensorSpec Spec(std::vector<uint64_t> shape, DType dtype = DType::kBF16,
                       TensorRole role = TensorRole::kKey) {
  return {.name = "t", .dtype = dtype, .shape = std::move(shape), .role = role};
}

inline std::string Bytes(DType dtype, const std::vector<float>& values) {
  std::string bytes;
  for (const float value : values) AppendElement(dtype, value, &bytes);
  return bytes;
}

inline std::vector<float> Values(DType dtype, absl::string_view bytes) {
  std::vector<float> values(bytes.size() / DTypeSize(dtype));
  LoadElements(dtype, reinterpret_cast<const uint8_t*>(bytes.data()),
               absl::MakeSpan(values));
  return values;
}

// A tensor as models have them: channels with means and widths of their own,
// tokens with norms of their own.
inline std::vector<float> Cache(const TensorSpec& spec, uint64_t seed = 1) {
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
inline std::vector<float> RotatedKeys(const TensorSpec& spec, double theta,
                                      bool interleaved) {
  std::vector<float> values = Cache(spec);
  const size_t tokens = spec.shape[2];
  const size_t channels = spec.shape[3];
  const coding::Rotation rotation = {
      .ratio = coding::RatioOf(theta, channels / 2),
      .interleaved = interleaved};
  coding::Rotator rotator;
  for (size_t first = 0; first < values.size(); first += tokens * channels) {
    rotator.Rotate(rotation, false, channels, 0, tokens, &values[first]);
  }
  return values;
}

inline absl::StatusOr<std::string> Decode(const TensorSpec& spec,
                                          absl::string_view payload,
                                          size_t chunk = 1 << 30) {
  std::string decoded;
  auto decoder = *EcsqCodec().NewDecoder(spec, *EcsqCodec().Parse("high"));
  const absl::Status status =
      testing::DecodeAll(*decoder, payload, &decoded, {.chunk = chunk});
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
inline Encoded RoundTrip(const TensorSpec& spec, const std::string& preset,
                         const std::vector<float>& values,
                         const EncodeHints& hints = {}) {
  Encoded out;
  const std::string bytes = Bytes(spec.dtype, values);
  auto encoder =
      *EcsqCodec().NewEncoder(spec, *EcsqCodec().Parse(preset), hints);
  EXPECT_TRUE(encoder->Append(bytes, &out.payload, &out.decoded_bytes).ok());
  EXPECT_TRUE(encoder->Finish(&out.payload, &out.decoded_bytes).ok());
  EXPECT_LE(out.payload.size(),
            *EcsqCodec().MaxEncodedSize(spec, *EcsqCodec().Parse(preset)));
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

inline bool IsCoded(const Encoded& encoded) { return encoded.payload[0] == 1; }

inline bool KeepsContract(const Metrics& metrics) {
  return metrics.rmse < 0.10 && metrics.max_error < 0.5 &&
         metrics.snr_db.value_or(99) > 18 && metrics.cosine_similarity > 0.99;
}

}  // namespace kvcompress::ecsq_testing

#endif  // KVCOMPRESS_TESTS_UNIT_CODECS_ECSQ_ROUND_TRIP_H_
