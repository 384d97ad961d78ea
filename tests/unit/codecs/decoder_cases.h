// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Payloads of all codecs, and what they are decoded to.

#ifndef KVCOMPRESS_TESTS_UNIT_CODECS_DECODER_CASES_H_
#define KVCOMPRESS_TESTS_UNIT_CODECS_DECODER_CASES_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "kvcompress/codec.h"
#include "support/decoding.h"

namespace kvcompress::decoder_cases {

inline TensorSpec Spec(std::vector<uint64_t> shape) {
  TensorSpec spec = {
      .name = "layer_0_key", .dtype = DType::kF32, .shape = std::move(shape)};
  InferRole(&spec);
  return spec;
}

// Zeros expand the most; the other tensor has blocks of every kind in all
// codecs, and heads that move together.
inline TensorSpec Zeros() { return Spec({1, 3, 2500, 64}); }
inline TensorSpec Waves() { return Spec({1, 2, 1100, 16}); }
inline std::string Source(const TensorSpec& spec, bool zeros) {
  std::string bytes(*ElementCount(spec) * sizeof(float), '\0');
  if (zeros) return bytes;
  for (size_t i = 0; i < bytes.size() / sizeof(float); ++i) {
    const auto token = static_cast<double>(i / 16 % 1100);
    const auto channel = static_cast<double>(i % 16);
    const double wave = std::sin(0.01 * token) + 0.7 * std::cos(0.37 * token);
    const uint32_t bits = std::bit_cast<uint32_t>(static_cast<float>(
        wave * (channel + 1) + 0.01 * static_cast<double>(i % 31)));
    std::memcpy(&bytes[i * sizeof(bits)], &bits, sizeof(bits));
  }
  return bytes;
}

inline std::string Encode(const CodecSpec& codec, const TensorSpec& spec,
                          const std::string& source) {
  auto encoder = codec.codec->NewEncoder(spec, codec.parameters, {});
  EXPECT_TRUE(encoder.ok()) << encoder.status();
  std::string payload;
  EXPECT_EQ((*encoder)->Append(source, &payload, nullptr), absl::OkStatus());
  EXPECT_EQ((*encoder)->Finish(&payload, nullptr), absl::OkStatus());
  return payload;
}

struct Outcome {
  absl::Status status;
  std::string decoded;
  size_t largest = 0;  // output of a step
};

inline Outcome Decode(const CodecSpec& codec, const TensorSpec& spec,
                      absl::string_view payload,
                      testing::DecodeSteps steps = {}) {
  Outcome outcome;
  auto decoder = codec.codec->NewDecoder(spec, codec.parameters);
  EXPECT_TRUE(decoder.ok()) << decoder.status();
  steps.see = [&](size_t size) {
    outcome.largest = std::max(outcome.largest, size);
  };
  outcome.status =
      testing::DecodeAll(**decoder, payload, &outcome.decoded, steps);
  return outcome;
}

// Each that is stored, with each byte compressor.
inline std::vector<std::string> Codecs() {
  std::vector<std::string> stages = ByteCompressors();
  stages.insert(stages.begin(), "");
  std::vector<std::string> codecs;
  for (const Codec* codec : AllCodecs()) {
    if (!codec->stored()) continue;
    for (const std::string& stage : stages) {
      const std::string& name = codec->traits().name;
      std::vector<std::string> choices = codec->SelfTestParameters();
      // The largest sparsity leaves the least of a block.
      if (name == "sparse") choices.emplace_back("1");
      for (const std::string& parameters : choices) {
        codecs.push_back(CodecString(name, parameters, stage));
      }
    }
  }
  return codecs;
}

// The name of a test of one of them.
inline std::string NameOf(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  for (char& c : name) c = std::isalnum(c) ? c : '_';
  return name;
}

}  // namespace kvcompress::decoder_cases

#endif  // KVCOMPRESS_TESTS_UNIT_CODECS_DECODER_CASES_H_
