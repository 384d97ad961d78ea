// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/ecsq/rope.h"

#include <algorithm>

namespace kvcompress::ecsq {
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

// Products of numbers in units of 2^-31, rounded down.
int64_t Multiply31(int64_t a, int64_t b) { return (a * b) >> 31; }

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

SinCos SinCosOf(uint64_t phase) {
  const uint32_t turn = static_cast<uint32_t>(phase >> 32);
  const uint32_t quadrant = (turn + 0x20000000u) >> 30;
  const int64_t offset = static_cast<int32_t>(turn - (quadrant << 30));
  const int64_t angle = (offset * 0x6487ED51) >> 29;
  const int64_t square = Multiply31(angle, angle);
  int64_t sine = Multiply31(square, -53);
  sine = Multiply31(square, 5917 + sine);
  sine = Multiply31(square, -426088 + sine);
  sine = Multiply31(square, 17895697 + sine);
  sine = Multiply31(square, -357913941 + sine);
  sine = angle + Multiply31(angle, sine);
  int64_t cosine = Multiply31(square, -591);
  cosine = Multiply31(square, 53261 + cosine);
  cosine = Multiply31(square, -2982616 + cosine);
  cosine = Multiply31(square, 89478485 + cosine);
  cosine = Multiply31(square, -1073741824 + cosine);
  cosine += int64_t{1} << 31;
  if (quadrant & 1) {
    const int64_t old = cosine;
    cosine = -sine;
    sine = old;
  }
  if (quadrant & 2) {
    cosine = -cosine;
    sine = -sine;
  }
  return {static_cast<float>(cosine) * 0x1p-31f,
          static_cast<float>(sine) * 0x1p-31f};
}

std::vector<SinCos> RotationTable(uint64_t ratio, size_t pairs, uint64_t first,
                                  size_t tokens) {
  std::vector<SinCos> table(tokens * pairs);
  uint64_t increment = kFirstIncrement;
  for (size_t pair = 0; pair < pairs; ++pair) {
    uint64_t phase = first * increment;
    for (size_t t = 0; t < tokens; ++t, phase += increment) {
      table[t * pairs + pair] = SinCosOf(phase);
    }
    increment = MultiplyHigh(increment, ratio);
  }
  return table;
}

void Unrotate(const std::vector<SinCos>& table, bool interleaved,
              size_t channels, size_t tokens, float* values) {
  const size_t pairs = channels / 2;
  const size_t stride = interleaved ? 2 : 1;
  const size_t distance = interleaved ? 1 : pairs;
  for (size_t t = 0; t < tokens; ++t) {
    const SinCos* row = &table[t * pairs];
    for (size_t pair = 0; pair < pairs; ++pair) {
      float* a = &values[t * channels + pair * stride];
      float* b = a + distance;
      const float x = *a;
      const float y = *b;
      *a = x * row[pair].cos + y * row[pair].sin;
      *b = y * row[pair].cos - x * row[pair].sin;
    }
  }
}

void Rotate(const SinCos* row, bool interleaved, size_t channels,
            float* values) {
  const size_t pairs = channels / 2;
  const size_t stride = interleaved ? 2 : 1;
  const size_t distance = interleaved ? 1 : pairs;
  for (size_t pair = 0; pair < pairs; ++pair) {
    float* a = values + pair * stride;
    float* b = a + distance;
    const float x = *a;
    const float y = *b;
    *a = x * row[pair].cos - y * row[pair].sin;
    *b = y * row[pair].cos + x * row[pair].sin;
  }
}

std::optional<Rotation> DetectRotation(const float* values, size_t heads,
                                       size_t tokens, size_t channels,
                                       std::optional<double> theta) {
  constexpr double kCommon[] = {1e4, 5e5, 1e6, 1e5,   5e6,  8e6,
                                1e7, 2e6, 5e4, 1.5e5, 2.5e5};
  constexpr size_t kMostTokens = 128;
  constexpr size_t kMostHeads = 4;
  // The first token is often unlike the rest.
  constexpr size_t kSkipped = 1;
  // Share of the energy that a rotation must move into the mean.
  constexpr double kClearly = 0.02;
  const size_t sample_tokens = std::min(tokens, kMostTokens + kSkipped);
  const size_t sample_heads = std::min(heads, kMostHeads);
  if (channels % 2 != 0 || sample_tokens < 4 + kSkipped) return std::nullopt;
  const size_t pairs = channels / 2;

  // Energy of the mean over tokens, and the whole energy, of the sample.
  double energy = 0;
  const auto mean_energy = [&](const std::vector<SinCos>* table,
                               bool interleaved) {
    double result = 0;
    std::vector<float> head;
    energy = 0;
    for (size_t h = 0; h < sample_heads; ++h) {
      const float* first = values + h * tokens * channels;
      head.assign(first, first + sample_tokens * channels);
      if (table != nullptr) {
        Unrotate(*table, interleaved, channels, sample_tokens, head.data());
      }
      std::vector<double> sums(channels);
      for (size_t t = kSkipped; t < sample_tokens; ++t) {
        for (size_t c = 0; c < channels; ++c) {
          const double value = head[t * channels + c];
          sums[c] += value;
          energy += value * value;
        }
      }
      for (const double sum : sums) {
        result += sum * sum / static_cast<double>(sample_tokens - kSkipped);
      }
    }
    return result;
  };

  std::optional<Rotation> best;
  double best_energy = mean_energy(nullptr, false);
  best_energy += kClearly * energy;
  const auto consider = [&](double base) {
    const uint64_t ratio = RatioOf(base, pairs);
    const auto table = RotationTable(ratio, pairs, 0, sample_tokens);
    for (const bool interleaved : {false, true}) {
      const double found = mean_energy(&table, interleaved);
      if (found > best_energy) {
        best_energy = found;
        best = {.ratio = ratio, .interleaved = interleaved};
      }
    }
  };
  if (!theta) {
    for (const double base : kCommon) consider(base);
  } else if (*theta != 0) {
    consider(*theta);
  }
  return best;
}

std::optional<Rotation> RemoveRotation(size_t heads, size_t tokens,
                                       size_t channels,
                                       std::optional<double> theta,
                                       float* values) {
  constexpr size_t kAtOnce = 1024;  // tokens; bounds the table
  const std::optional<Rotation> rotation =
      DetectRotation(values, heads, tokens, channels, theta);
  if (!rotation) return rotation;
  for (size_t first = 0; first < tokens; first += kAtOnce) {
    const size_t count = std::min(kAtOnce, tokens - first);
    const std::vector<SinCos> table =
        RotationTable(rotation->ratio, channels / 2, first, count);
    for (size_t h = 0; h < heads; ++h) {
      Unrotate(table, rotation->interleaved, channels, count,
               &values[(h * tokens + first) * channels]);
    }
  }
  return rotation;
}

}  // namespace kvcompress::ecsq
