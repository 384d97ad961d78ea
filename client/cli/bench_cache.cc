// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "client/cli/bench_cache.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kvcompress/dtype.h"
#include "kvcompress/safetensors.h"

namespace kvcompress::cli {
namespace {

constexpr uint64_t kHeads = 8;
constexpr size_t kHeadDim = 128;
constexpr uint64_t kTokenBytes = kHeads * kHeadDim * 2;  // of a tensor
constexpr uint64_t kMaxLayers = 32;
// A layer gets this many tokens before there is another one.
constexpr uint64_t kTokensOfLayer = 512;
constexpr double kRopeBase = 500'000;

// Numbers that are near enough to a normal distribution, from a linear
// congruential generator (Knuth, MMIX).
class Noise {
 public:
  float Next() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    // The sum of three uniform numbers has the variance 1/4. The lowest bits of
    // the state have short periods.
    const auto sum =
        static_cast<float>((state_ >> 16 & 0xFFFF) + (state_ >> 32 & 0xFFFF) +
                           (state_ >> 48 & 0xFFFF));
    return (sum * 0x1p-16f - 1.5f) * 2;
  }

 private:
  uint64_t state_ = 1;
};

using Row = std::array<float, kHeadDim>;

// Cosines, then sines, of the rotation of each pair of channels of a token.
using Rotation = Row;

std::vector<Rotation> RotationsOf(uint64_t tokens) {
  std::vector<Rotation> rotations(tokens);
  for (uint64_t token = 0; token < tokens; ++token) {
    for (size_t pair = 0; pair < kHeadDim / 2; ++pair) {
      const double angle =
          static_cast<double>(token) *
          std::pow(kRopeBase, -2.0 * static_cast<double>(pair) / kHeadDim);
      rotations[token][pair] = static_cast<float>(std::cos(angle));
      rotations[token][pair + kHeadDim / 2] =
          static_cast<float>(std::sin(angle));
    }
  }
  return rotations;
}

// Pairs are half a head apart, as in transformers.
void Rotate(const Rotation& rotation, Row* row) {
  constexpr size_t kHalf = kHeadDim / 2;
  for (size_t pair = 0; pair < kHalf; ++pair) {
    const float x = (*row)[pair];
    const float y = (*row)[pair + kHalf];
    (*row)[pair] = x * rotation[pair] - y * rotation[pair + kHalf];
    (*row)[pair + kHalf] = x * rotation[pair + kHalf] + y * rotation[pair];
  }
}

// Appends a head: keys where there are rotations.
void AppendHead(uint64_t tokens, const std::vector<Rotation>* rotations,
                Noise* noise, std::string* data) {
  const bool keys = rotations != nullptr;
  const float memory = keys ? 0.9f : 0.5f;  // of the tokens before
  const float fresh = std::sqrt(1 - memory * memory);
  Row mean = {}, spread, state;
  for (size_t channel = 0; channel < kHeadDim; ++channel) {
    // Keys have a few channels far from zero in all tokens.
    if (keys) mean[channel] = noise->Next() * (channel % 16 == 0 ? 8.f : 1.f);
    spread[channel] = std::exp(0.5f * noise->Next());
    state[channel] = noise->Next();
  }
  for (uint64_t token = 0; token < tokens; ++token) {
    Row row;
    for (size_t channel = 0; channel < kHeadDim; ++channel) {
      state[channel] = memory * state[channel] + fresh * noise->Next();
      row[channel] = mean[channel] + spread[channel] * state[channel];
    }
    if (keys) Rotate((*rotations)[token], &row);
    for (const float value : row) AppendElement(DType::kBF16, value, data);
  }
}

}  // namespace

std::string GenerateCache(uint64_t size) {
  const uint64_t layer_tokens = size / (2 * kTokenBytes);
  const uint64_t layers =
      std::clamp<uint64_t>(layer_tokens / kTokensOfLayer, 1, kMaxLayers);
  const uint64_t tokens = layer_tokens / layers;
  const uint64_t tensor_size = tokens * kTokenBytes;
  SafetensorsHeader header;
  for (uint64_t layer = 0; layer < layers; ++layer) {
    for (const char* const role : {"key", "value"}) {
      SafetensorsEntry entry;
      entry.spec.name = absl::StrCat("layer_", layer, "_", role);
      entry.spec.dtype = DType::kBF16;
      entry.spec.shape = {1, kHeads, tokens, kHeadDim};
      entry.begin = header.data_size;
      entry.end = header.data_size += tensor_size;
      header.tensors.push_back(std::move(entry));
    }
  }
  std::string file = SerializeSafetensorsHeader(header);
  file.reserve(file.size() + header.data_size);
  const std::vector<Rotation> rotations = RotationsOf(tokens);
  Noise noise;
  for (uint64_t layer = 0; layer < layers; ++layer) {
    for (const std::vector<Rotation>* const rotated : {&rotations, {}}) {
      for (uint64_t head = 0; head < kHeads; ++head) {
        AppendHead(tokens, rotated, &noise, &file);
      }
    }
  }
  return file;
}

}  // namespace kvcompress::cli
