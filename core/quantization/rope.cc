// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "quantization/rope.h"

#include <algorithm>
#include <utility>

#include "kernels/kernels.h"

namespace kvcompress::coding {
namespace {

uint64_t MultiplyHigh(uint64_t a, uint64_t b) {
  const uint64_t a_low = a & 0xffffffff, a_high = a >> 32;
  const uint64_t b_low = b & 0xffffffff, b_high = b >> 32;
  const uint64_t low = a_low * b_low;
  const uint64_t middle = a_high * b_low + (low >> 32);
  const uint64_t other = a_low * b_high + (middle & 0xffffffff);
  return a_high * b_high + (middle >> 32) + (other >> 32);
}

// (ratio / 2^64)^power * 2^64, about; ratio is below 1.
uint64_t Power(uint64_t ratio, size_t power) {
  uint64_t result = ~uint64_t{0};
  for (; power != 0; power >>= 1) {
    if (power & 1) result = MultiplyHigh(result, ratio);
    ratio = MultiplyHigh(ratio, ratio);
  }
  return result;
}

}  // namespace

uint64_t RatioOf(double theta, size_t pairs) {
  const double target = 0x1p64 / theta;
  uint64_t ratio = 0;
  for (int bit = 63; bit >= 0; --bit) {
    const uint64_t candidate = ratio | uint64_t{1} << bit;
    if (static_cast<double>(Power(candidate, pairs)) <= target) {
      ratio = candidate;
    }
  }
  return ratio;
}

std::vector<uint64_t> Increments(uint64_t ratio, size_t pairs) {
  std::vector<uint64_t> increments(pairs);
  uint64_t increment = kFirstIncrement;
  for (uint64_t& each : increments) {
    each = increment;
    increment = MultiplyHigh(increment, ratio);
  }
  return increments;
}

void Rotator::Rotate(const Rotation& rotation, bool back, size_t pairs,
                     uint64_t first, size_t tokens, float* values) {
  kernels::Active().rows.rotate(TableOf(rotation.ratio, pairs, first, tokens),
                                {.tokens = tokens,
                                 .pairs = pairs,
                                 .interleaved = rotation.interleaved,
                                 .back = back},
                                values);
}

const float* Rotator::TableOf(uint64_t ratio, size_t pairs, uint64_t first,
                              size_t tokens) {
  if (ratio_ != ratio || pairs_ != pairs) {
    ratio_ = ratio;
    pairs_ = pairs;
    kept_.clear();
    last_.clear();
  }
  const size_t token = 2 * pairs;
  const auto fill = [&](uint64_t begin, uint64_t end, float* table) {
    kernels::Active().rows.fill_rotation(Increments(ratio, pairs).data(), pairs,
                                         begin, end - begin, table);
  };
  const uint64_t end = first + tokens;
  constexpr size_t kMost = kMaxKept / sizeof(float);
  if (end <= kMost / token) {
    const size_t before = kept_.size() / token;
    if (before < end) {
      if (end * token > kept_.capacity()) {
        kept_.reserve(std::min(Grown(end * token), kMost));
      }
      kept_.resize(end * token);
      fill(before, end, &kept_[before * token]);
    }
    return kept_.data() + first * token;
  }
  if (last_first_ != first || last_.size() != tokens * token) {
    last_first_ = first;
    last_.resize(tokens * token);
    fill(first, end, last_.data());
  }
  return last_.data();
}

namespace {

// Tokens [first, first + tokens) of some heads of keys [.., all_tokens,
// channels].
struct Sample {
  const float* values;
  size_t heads;
  size_t first;
  size_t tokens;
  size_t all_tokens;
  size_t channels;

  const float* Head(size_t h) const {
    return values + (h * all_tokens + first) * channels;
  }
};

// Energy of the means over the tokens of the sample when `ratio` is undone; of
// the means as they are, where there is no ratio.
double MeanEnergy(const Sample& sample, std::optional<Rotation> rotation) {
  const size_t pairs = sample.channels / 2;
  std::vector<float> turn(sample.channels);
  std::fill_n(turn.begin(), pairs, 1.0f);
  if (rotation) {
    kernels::Active().rows.fill_rotation(
        Increments(rotation->ratio, pairs).data(), pairs, 1, 1, turn.data());
  }
  std::vector<float> sums(sample.channels);
  double result = 0;
  for (size_t h = 0; h < sample.heads; ++h) {
    kernels::Active().rows.sum_turned_back(
        turn.data(),
        {.tokens = sample.tokens,
         .pairs = pairs,
         .interleaved = rotation && rotation->interleaved},
        sample.Head(h), sums.data());
    for (const double sum : sums) result += sum * sum;
  }
  return result / static_cast<double>(sample.tokens);
}

double Energy(const Sample& sample) {
  double result = 0;
  for (size_t h = 0; h < sample.heads; ++h) {
    result += kernels::Active().rows.sum_squares(
        sample.Head(h), sample.tokens * sample.channels);
  }
  return result;
}

}  // namespace

std::optional<Rotation> DetectRotation(const float* values, size_t heads,
                                       size_t tokens, size_t channels,
                                       std::optional<double> theta,
                                       Checkpoint* checkpoint) {
  constexpr double kCommon[] = {1e4, 5e5, 1e6, 1e5,   5e6,  8e6,
                                1e7, 2e6, 5e4, 1.5e5, 2.5e5};
  // The first token is often unlike the rest.
  constexpr size_t kSkipped = 1;
  // A look at fewer tokens of one head leaves so many candidates.
  constexpr size_t kGlanceTokens = 64;
  constexpr size_t kLeft = 6;
  // Share of the energy that a rotation must move into the mean.
  constexpr double kClearly = 0.02;
  if (channels % 2 != 0 || tokens < 4 + kSkipped || theta == 0) {
    return std::nullopt;
  }
  std::vector<Rotation> candidates;
  const auto consider = [&](double base) {
    const uint64_t ratio = RatioOf(base, channels / 2);
    candidates.push_back({.ratio = ratio, .interleaved = false});
    candidates.push_back({.ratio = ratio, .interleaved = true});
  };
  if (theta) {
    consider(*theta);
  } else {
    for (const double base : kCommon) consider(base);
  }

  Sample sample = {.values = values,
                   .heads = 1,
                   .first = kSkipped,
                   .tokens = std::min(tokens - kSkipped, kGlanceTokens),
                   .all_tokens = tokens,
                   .channels = channels};
  if (candidates.size() > kLeft) {
    std::vector<std::pair<double, Rotation>> glances;
    glances.reserve(candidates.size());
    for (const Rotation& candidate : candidates) {
      if (Stops(checkpoint)) return std::nullopt;
      glances.emplace_back(MeanEnergy(sample, candidate), candidate);
    }
    std::stable_sort(
        glances.begin(), glances.end(),
        [](const auto& a, const auto& b) { return a.first > b.first; });
    candidates.clear();
    for (size_t i = 0; i < kLeft; ++i) candidates.push_back(glances[i].second);
  }

  sample.heads = std::min(heads, kRotationHeads);
  sample.tokens = std::min(tokens, kRotationTokens) - kSkipped;
  std::optional<Rotation> best;
  double best_energy =
      MeanEnergy(sample, std::nullopt) + kClearly * Energy(sample);
  for (const Rotation& candidate : candidates) {
    if (Stops(checkpoint)) return std::nullopt;
    const double found = MeanEnergy(sample, candidate);
    if (found > best_energy) {
      best_energy = found;
      best = candidate;
    }
  }
  return best;
}

std::optional<Rotation> RemoveRotation(size_t heads, size_t tokens,
                                       size_t channels,
                                       std::optional<double> theta,
                                       Rotator* rotator, float* values,
                                       Checkpoint* checkpoint) {
  constexpr size_t kAtOnce = 1024;  // tokens; bounds a table
  const std::optional<Rotation> rotation =
      DetectRotation(values, heads, tokens, channels, theta, checkpoint);
  if (!rotation) return rotation;
  for (size_t first = 0; first < tokens; first += kAtOnce) {
    const size_t count = std::min(kAtOnce, tokens - first);
    for (size_t h = 0; h < heads; ++h) {
      if (Stops(checkpoint)) return rotation;
      rotator->Rotate(*rotation, true, channels / 2, first, count,
                      &values[(h * tokens + first) * channels]);
    }
  }
  return rotation;
}

}  // namespace kvcompress::coding
