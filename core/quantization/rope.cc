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

std::vector<uint64_t> Increments(const Rotation& rotation, size_t pairs) {
  std::vector<uint64_t> increments(pairs);
  uint64_t increment = kFirstIncrement;
  for (uint64_t& each : increments) {
    each = increment;
    increment = MultiplyHigh(increment, rotation.ratio);
  }
  size_t pair = 0;
  for (const Rotation::Run& run : rotation.runs) {
    const uint64_t factor = uint64_t{run.multiplier} << 32;
    for (size_t i = 0; i < run.length && pair < pairs; ++i, ++pair) {
      // The increment is below 2^62, and the factor over 2^63 below 2.
      increments[pair] = MultiplyHigh(2 * increments[pair], factor);
    }
  }
  return increments;
}

void Rotate(const Rotation& rotation, const float* table, bool back,
            size_t channels, size_t tokens, float* values) {
  constexpr size_t kAtOnce = 32;  // tokens
  const size_t pairs = rotation.Pairs(channels);
  const auto turn = [&](const float* turns, size_t count, float* rows) {
    kernels::Active().rows.rotate(turns,
                                  {.tokens = count,
                                   .pairs = pairs,
                                   .interleaved = rotation.interleaved,
                                   .back = back},
                                  rows);
  };
  if (2 * pairs == channels && rotation.shift == 0) {
    turn(table, tokens, values);
    return;
  }
  const float finer = static_cast<float>(1 << rotation.shift);
  const float scale = back ? finer : 1 / finer;
  const size_t size = 2 * pairs;
  std::vector<float> part(kAtOnce * size);
  for (size_t begin = 0; begin < tokens; begin += kAtOnce) {
    const size_t count = std::min(kAtOnce, tokens - begin);
    float* const rows = values + begin * channels + rotation.first;
    for (size_t t = 0; t < count; ++t) {
      for (size_t i = 0; i < size; ++i) {
        part[t * size + i] = rows[t * channels + i] * scale;
      }
    }
    turn(table + begin * size, count, part.data());
    for (size_t t = 0; t < count; ++t) {
      std::copy_n(&part[t * size], size, rows + t * channels);
    }
  }
}

void Rotator::Rotate(const Rotation& rotation, bool back, size_t channels,
                     uint64_t first, size_t tokens, float* values) {
  coding::Rotate(rotation, TableOf(rotation, channels, first, tokens), back,
                 channels, tokens, values);
}

const float* Rotator::TableOf(const Rotation& rotation, size_t channels,
                              uint64_t first, size_t tokens) {
  const size_t pairs = rotation.Pairs(channels);
  if (increments_.size() != pairs || rotation_ != rotation) {
    rotation_ = rotation;
    increments_ = Increments(rotation, pairs);
    kept_.clear();
    last_.clear();
  }
  const size_t token = 2 * pairs;
  const auto fill = [&](uint64_t begin, uint64_t end, float* table) {
    kernels::Active().rows.fill_rotation(increments_.data(), pairs, begin,
                                         end - begin, table);
  };
  const uint64_t end = first + tokens;
  constexpr size_t kMax = kMaxKept / sizeof(float);
  if (end <= kMax / token) {
    const size_t before = kept_.size() / token;
    if (before < end) {
      if (end * token > kept_.capacity()) {
        kept_.reserve(std::min(Grown(end * token), kMax));
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

// Energy of the means over the tokens of the sample when the rotation, of all
// its channels, is undone; of the means as they are, where there is none.
double MeanEnergy(const Sample& sample, const Rotation* rotation) {
  const size_t pairs = sample.channels / 2;
  std::vector<float> turn(sample.channels);
  std::fill_n(turn.begin(), pairs, 1.0f);
  if (rotation != nullptr) {
    kernels::Active().rows.fill_rotation(Increments(*rotation, pairs).data(),
                                         pairs, 1, 1, turn.data());
  }
  std::vector<float> sums(sample.channels);
  double result = 0;
  for (size_t h = 0; h < sample.heads; ++h) {
    kernels::Active().rows.sum_turned_back(
        turn.data(),
        {.tokens = sample.tokens,
         .pairs = pairs,
         .interleaved = rotation != nullptr && rotation->interleaved},
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

// The channels of a sample that are rotated.
class Rotated {
 public:
  Rotated(const Sample& sample, const Rotation& rotation) : sample_(sample) {
    const size_t size = 2 * rotation.Pairs(sample.channels);
    if (size == sample.channels) return;
    values_.reserve(sample.heads * sample.tokens * size);
    for (size_t h = 0; h < sample.heads; ++h) {
      for (size_t t = 0; t < sample.tokens; ++t) {
        const float* const row =
            sample.Head(h) + t * sample.channels + rotation.first;
        values_.insert(values_.end(), row, row + size);
      }
    }
    sample_.values = values_.data();
    sample_.first = 0;
    sample_.all_tokens = sample.tokens;
    sample_.channels = size;
  }
  const Sample& sample() const { return sample_; }

 private:
  Sample sample_;
  std::vector<float> values_;
};

}  // namespace

std::optional<FoundRotation> DetectRotation(
    const float* values, size_t heads, size_t tokens, size_t channels,
    const RotationCandidates& candidates, Checkpoint* checkpoint) {
  // The first token is often unlike the rest.
  constexpr size_t kSkipped = 1;
  // A look at fewer tokens of one head leaves so many candidates.
  constexpr size_t kGlanceTokens = 64;
  constexpr size_t kLeft = 6;
  // Share of the energy that a rotation must move into the mean.
  constexpr double kClearly = 0.02;
  if (tokens < 4 + kSkipped || candidates.list.empty()) return std::nullopt;
  std::vector<const RotationCandidates::Candidate*> left;
  for (const auto& candidate : candidates.list) left.push_back(&candidate);

  Sample sample = {.values = values,
                   .heads = 1,
                   .first = kSkipped,
                   .tokens = std::min(tokens - kSkipped, kGlanceTokens),
                   .all_tokens = tokens,
                   .channels = channels};
  if (left.size() > kLeft) {
    std::vector<std::pair<double, const RotationCandidates::Candidate*>>
        glances;
    glances.reserve(left.size());
    for (const auto* const candidate : left) {
      if (Stops(checkpoint)) return std::nullopt;
      const Rotated part(sample, candidate->rotation);
      glances.emplace_back(MeanEnergy(part.sample(), &candidate->rotation),
                           candidate);
    }
    std::stable_sort(
        glances.begin(), glances.end(),
        [](const auto& a, const auto& b) { return a.first > b.first; });
    left.clear();
    for (size_t i = 0; i < kLeft; ++i) left.push_back(glances[i].second);
  }

  sample.heads = std::min(heads, kRotationHeads);
  sample.tokens = std::min(tokens, kRotationTokens) - kSkipped;
  const RotationCandidates::Candidate* best = nullptr;
  double best_energy = 0;
  double gain = 0;
  const double all_energy = Energy(sample);
  double unturned = 0;
  double least = 0;  // that is clearly more than without a rotation
  size_t least_channels = 0;
  for (const auto* const candidate : left) {
    if (Stops(checkpoint)) return std::nullopt;
    const Rotated part(sample, candidate->rotation);
    if (part.sample().channels != least_channels) {
      least_channels = part.sample().channels;
      unturned = MeanEnergy(part.sample(), nullptr);
      least = unturned + kClearly * Energy(part.sample());
    }
    const double found = MeanEnergy(part.sample(), &candidate->rotation);
    if (found > least && (best == nullptr || found > best_energy)) {
      best_energy = found;
      best = candidate;
      gain = (found - unturned) / all_energy;
    }
  }
  if (best == nullptr) return std::nullopt;
  return FoundRotation{.rotation = best->rotation,
                       .finding = {.embedding = best->embedding,
                                   .declared = candidates.declared},
                       .gain = gain};
}

std::optional<double> LikelierBase(const float* values, size_t heads,
                                   size_t tokens, size_t channels,
                                   const RotationCandidates& candidates,
                                   const std::optional<FoundRotation>& found,
                                   Checkpoint* checkpoint) {
  // Part of the energy. Bases next to each other differ by less.
  constexpr double kClearly = 0.05;
  // Of few tokens chance makes as much.
  constexpr size_t kFewestTokens = 64;
  if (tokens < kFewestTokens) return std::nullopt;
  const std::optional<FoundRotation> usual = DetectRotation(
      values, heads, tokens, channels, {.list = candidates.usual}, checkpoint);
  if (!usual || usual->gain < (found ? found->gain : 0) + kClearly) {
    return std::nullopt;
  }
  return usual->finding.embedding.theta;
}

}  // namespace kvcompress::coding
