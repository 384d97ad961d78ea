// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/klt/token_weights.h"

#include <algorithm>
#include <cmath>

#include "tensor/slabs.h"

namespace kvcompress::klt {
namespace {

// Attention sinks: their keys say nothing about the others.
constexpr size_t kSinks = 4;
// Octaves of attention for a projection of one standard deviation, and the most
// that is believed of it; measured on SmolLM2-135M.
constexpr double kOctaves = 0.45;
constexpr double kMaxWeight = 2;
// Attention falls with age, but not among the newest tokens.
constexpr double kNewest = 8;
// Octaves that steps shrink and grow by.
constexpr double kMinOctaves = -2;
constexpr double kMaxOctaves = 0.75;
// Sharpness from which on steps shrink, from which on they shrink by only a
// part of what is beyond it, and the most octaves that they do; measured on
// SmolLM2-135M, Gemma 3 270M and Qwen2.5-Coder-0.5B. Beyond kSharp attention
// picks single tokens, and models normalize the keys that are so large.
constexpr double kDull = 1.5;
constexpr double kSharp = 6;
constexpr double kPartBeyond = 0.25;
constexpr double kMaxShrinking = 4;
// Tokens of a head between two looks at a checkpoint.
constexpr size_t kLookTokens = 4096;
// Tokens that are loaded together, and stay in the nearest cache.
constexpr size_t kTokensAtOnce = 32;
static_assert(kLookTokens % kTokensAtOnce == 0);

}  // namespace

KeyHints AnalyzeKeys(const Geometry& geometry, LoadTokens load,
                     Checkpoint* checkpoint) {
  const size_t tokens = geometry.tokens();
  const size_t channels = geometry.channels();
  KeyHints hints;
  if (tokens <= kSinks) return hints;
  std::vector<float>& weights = hints.attention;
  ResizeInSlabs(checkpoint, tokens, &weights);
  double squares = 0;
  double fourth_powers = 0;
  std::vector<double> mean(channels);
  std::vector<float> values(kTokensAtOnce * channels);
  // visit(token, row) for each token of a head that is no sink.
  const auto for_each_row = [&](size_t head, auto visit) {
    for (size_t begin = kSinks; begin < tokens; begin += kTokensAtOnce) {
      if (begin % kLookTokens == kSinks && Stops(checkpoint)) return;
      const size_t end = std::min(tokens, begin + kTokensAtOnce);
      load(head, begin, end, values.data());
      for (size_t t = begin; t < end; ++t) {
        visit(t, &values[(t - begin) * channels]);
      }
    }
  };
  for (size_t h = 0; h < geometry.heads(); ++h) {
    if (Stops(checkpoint)) return {};
    std::fill(mean.begin(), mean.end(), 0);
    for_each_row(h, [&](size_t, const float* row) {
      for (size_t c = 0; c < channels; ++c) mean[c] += row[c];
    });
    double length = 0;
    for (double& value : mean) {
      value /= static_cast<double>(tokens - kSinks);
      length += value * value;
    }
    length = std::sqrt(length);
    for_each_row(h, [&](size_t t, const float* row) {
      double product = 0;
      for (size_t c = 0; c < channels; ++c) {
        const double difference = row[c] - mean[c];
        const double square = difference * difference;
        squares += square;
        fourth_powers += square * square;
        product -= difference * mean[c];
      }
      if (length > 0) weights[t] += static_cast<float>(product / length);
    });
  }
  if (Stops(checkpoint)) return {};
  const double heads = static_cast<double>(geometry.heads());
  const double count = heads * static_cast<double>(channels) *
                       static_cast<double>(tokens - kSinks);
  const double spread = std::sqrt(squares / count);
  if (fourth_powers == 0) return {};
  hints.sharpness = std::log2(fourth_powers / count);
  std::vector<float> sorted(weights.begin() + kSinks, weights.end());
  const auto middle =
      sorted.begin() + static_cast<ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  const float median = *middle;
  for (size_t t = kSinks; t < tokens; ++t) {
    const double octaves = kOctaves * (weights[t] - median) / (heads * spread);
    weights[t] = static_cast<float>(
        std::clamp(std::round(2 * octaves) / 2, -kMaxWeight, kMaxWeight));
  }
  return hints;
}

double SharpnessFactor(const Preset& preset, std::optional<double> sharpness) {
  const double value = sharpness.value_or(kDull);
  const double beyond = std::max(0.0, value - kSharp);
  const double octaves = preset.sharpening * (std::min(value, kSharp) - kDull +
                                              kPartBeyond * beyond);
  return std::exp2(-std::clamp(octaves, 0.0, kMaxShrinking));
}

std::vector<float> AttentionOf(size_t tokens, absl::Span<const float> weights,
                               Checkpoint* checkpoint) {
  std::vector<float> attention;
  ResizeInSlabs(checkpoint, tokens, &attention);
  if (Stops(checkpoint)) return attention;
  for (size_t t = 0; t < tokens; ++t) {
    if (t % kLookTokens == 0 && Stops(checkpoint)) break;
    const double age = static_cast<double>(tokens - 1 - t);
    attention[t] = static_cast<float>((weights.empty() ? 0 : weights[t]) -
                                      std::log2(age + kNewest));
  }
  return attention;
}

std::vector<int8_t> OffsetsOf(const Preset& preset,
                              absl::Span<const float> attention,
                              Checkpoint* checkpoint) {
  std::vector<int8_t> offsets;
  ResizeInSlabs(checkpoint, attention.size(), &offsets);
  if (Stops(checkpoint)) return offsets;
  if (preset.weighting == 0) return offsets;
  double mean = 0;
  for (const float octaves : attention) mean += octaves;
  mean /= static_cast<double>(attention.size());
  for (size_t t = 0; t < attention.size(); ++t) {
    if (t % kLookTokens == 0 && Stops(checkpoint)) break;
    const double octaves = std::clamp(-preset.weighting * (attention[t] - mean),
                                      kMinOctaves, kMaxOctaves);
    offsets[t] = static_cast<int8_t>(-std::round(4 * octaves));
  }
  return offsets;
}

}  // namespace kvcompress::klt
