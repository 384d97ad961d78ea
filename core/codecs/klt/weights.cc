// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/klt/weights.h"

#include <algorithm>
#include <cmath>

namespace kvcompress::klt {
namespace {

// Attention sinks: their keys say nothing about the others.
constexpr size_t kSinks = 4;
// Octaves of attention for a projection of one standard deviation, and the most
// that is believed of it; measured on SmolLM2-135M.
constexpr double kOctaves = 0.45;
constexpr double kMostWeight = 2;
// Attention falls with age, but not among the newest tokens.
constexpr double kNewest = 8;
constexpr double kLeastOctaves = -2;

}  // namespace

std::vector<double> KeyWeights(const Geometry& geometry,
                               absl::Span<const float> values) {
  const size_t tokens = geometry.tokens();
  const size_t channels = geometry.channels();
  std::vector<double> weights(tokens);
  if (tokens <= kSinks) return weights;
  double squares = 0;
  std::vector<double> mean(channels);
  for (size_t h = 0; h < geometry.heads(); ++h) {
    const float* const head = &values[h * tokens * channels];
    std::fill(mean.begin(), mean.end(), 0);
    for (size_t t = kSinks; t < tokens; ++t) {
      for (size_t c = 0; c < channels; ++c) mean[c] += head[t * channels + c];
    }
    double length = 0;
    for (double& value : mean) {
      value /= static_cast<double>(tokens - kSinks);
      length += value * value;
    }
    length = std::sqrt(length);
    for (size_t t = kSinks; t < tokens; ++t) {
      double product = 0;
      for (size_t c = 0; c < channels; ++c) {
        const double difference = head[t * channels + c] - mean[c];
        squares += difference * difference;
        product -= difference * mean[c];
      }
      if (length > 0) weights[t] += product / length;
    }
  }
  const double heads = static_cast<double>(geometry.heads());
  const double spread =
      std::sqrt(squares / (heads * static_cast<double>(channels) *
                           static_cast<double>(tokens - kSinks)));
  if (spread == 0) return std::vector<double>(tokens);
  std::vector<double> sorted(weights.begin() + kSinks, weights.end());
  const auto middle = sorted.begin() + sorted.size() / 2;
  std::nth_element(sorted.begin(), middle, sorted.end());
  const double median = *middle;
  for (size_t t = kSinks; t < tokens; ++t) {
    const double octaves = kOctaves * (weights[t] - median) / (heads * spread);
    weights[t] =
        std::clamp(std::round(2 * octaves) / 2, -kMostWeight, kMostWeight);
  }
  return weights;
}

std::vector<int8_t> OffsetsOf(const Preset& preset, size_t tokens,
                              absl::Span<const double> weights) {
  std::vector<int8_t> offsets(tokens);
  if (preset.weighting == 0) return offsets;
  const auto age_octaves = [&](size_t t) {
    return std::log2(static_cast<double>(tokens - 1 - t) + kNewest);
  };
  double mean = 0;
  for (size_t t = 0; t < tokens; ++t) mean += age_octaves(t);
  mean /= static_cast<double>(tokens);
  for (size_t t = 0; t < tokens; ++t) {
    const double weight =
        (weights.empty() ? 0 : weights[t]) - age_octaves(t) + mean;
    const double octaves = std::clamp(-preset.weighting * weight, kLeastOctaves,
                                      preset.most_octaves);
    offsets[t] = static_cast<int8_t>(-std::round(4 * octaves));
  }
  return offsets;
}

}  // namespace kvcompress::klt
