// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "kvcompress/error.h"
#include "kvcompress/rope.h"

namespace kvcompress {
namespace {

constexpr double kTwoPi = 6.283185307179586;

bool Within(double value, double least, double most) {
  return value >= least && value <= most;
}

// What is wrong; empty for nothing.
std::string WrongScaling(const RopeScaling& scaling) {
  using Type = RopeScaling::Type;
  if (scaling.type == Type::kNone) return "";
  if (!Within(scaling.factor, 1, 1e6)) return "factor must be from 1 to 1e6";
  if (scaling.type == Type::kLinear) return "";
  if (!Within(scaling.original_positions, 1, 1e12)) {
    return "original_positions must be from 1 to 1e12";
  }
  if (scaling.type == Type::kLlama3 &&
      !(Within(scaling.low_frequency_factor, 1e-6, 1e6) &&
        Within(scaling.high_frequency_factor, 1e-6, 1e6) &&
        scaling.low_frequency_factor < scaling.high_frequency_factor)) {
    return "low_frequency_factor must be above 0 and below "
           "high_frequency_factor";
  }
  if (scaling.type == Type::kYarn && !(Within(scaling.beta_slow, 1e-6, 1e6) &&
                                       Within(scaling.beta_fast, 1e-6, 1e6) &&
                                       scaling.beta_slow < scaling.beta_fast)) {
    return "beta_slow must be above 0 and below beta_fast";
  }
  return "";
}

std::string Wrong(const RopeEmbedding& embedding) {
  constexpr uint32_t kMaxChannels = 4096;
  if (!Within(embedding.theta, 1, 1e12)) return "theta must be from 1 to 1e12";
  if (embedding.rotary_channels % 2 != 0) {
    return "rotary_channels must be even";
  }
  if (embedding.first_channel > kMaxChannels ||
      embedding.rotary_channels > kMaxChannels) {
    return absl::StrCat("channels are at most ", kMaxChannels);
  }
  if (embedding.scaling.type == RopeScaling::Type::kYarn &&
      embedding.theta < 1.001) {
    return "theta must be at least 1.001 with yarn";
  }
  return WrongScaling(embedding.scaling);
}

// Of a wave of so many tokens.
double Llama3Multiplier(const RopeScaling& scaling, double wavelength) {
  const double waves = scaling.original_positions / wavelength;
  const double smooth =
      (waves - scaling.low_frequency_factor) /
      (scaling.high_frequency_factor - scaling.low_frequency_factor);
  const double whole = std::clamp(smooth, 0.0, 1.0);
  return (1 - whole) / scaling.factor + whole;
}

// The pair, of so many, that turns `turns` times within the original positions.
double PairOfTurns(const RopeEmbedding& embedding, double turns, double pairs) {
  return pairs *
         std::log(embedding.scaling.original_positions / (turns * kTwoPi)) /
         std::log(embedding.theta);
}

}  // namespace

absl::Status ValidateRope(const RopeParameters& rope) {
  const auto invalid = [](absl::string_view what) {
    return MakeError(absl::StatusCode::kInvalidArgument,
                     absl::StrCat("rope: ", what),
                     {.reason = "INVALID_OPTIONS", .field = "options.rope"});
  };
  if (rope.embeddings.size() > kMaxRopeEmbeddings) {
    return invalid(absl::StrCat("there are more than ", kMaxRopeEmbeddings,
                                " embeddings"));
  }
  for (const RopeEmbedding& embedding : rope.embeddings) {
    const std::string wrong = Wrong(embedding);
    if (!wrong.empty()) return invalid(wrong);
  }
  if (rope.layers.size() > kMaxRopeLayers) {
    return invalid(
        absl::StrCat("there are more than ", kMaxRopeLayers, " layers"));
  }
  for (const uint32_t number : rope.layers) {
    if (number > rope.embeddings.size()) {
      return invalid(absl::StrCat("a layer has embedding ", number, " of ",
                                  rope.embeddings.size()));
    }
  }
  return absl::OkStatus();
}

std::vector<double> RopeMultipliers(const RopeEmbedding& embedding,
                                    size_t pairs) {
  const RopeScaling& scaling = embedding.scaling;
  std::vector<double> multipliers(pairs, 1.0);
  const double count = static_cast<double>(pairs);
  double low = 0;
  double high = 0;
  if (scaling.type == RopeScaling::Type::kYarn) {
    low = PairOfTurns(embedding, scaling.beta_fast, count);
    high = PairOfTurns(embedding, scaling.beta_slow, count);
    if (scaling.truncate) {
      low = std::floor(low);
      high = std::ceil(high);
    }
    low = std::max(low, 0.0);
    high = std::min(high, 2 * count - 1);
    if (low == high) high += 0.001;
  }
  for (size_t pair = 0; pair < pairs; ++pair) {
    const double index = static_cast<double>(pair);
    double& multiplier = multipliers[pair];
    switch (scaling.type) {
      case RopeScaling::Type::kNone:
        break;
      case RopeScaling::Type::kLinear:
        multiplier = 1 / scaling.factor;
        break;
      case RopeScaling::Type::kLlama3:
        multiplier = Llama3Multiplier(
            scaling, kTwoPi * std::pow(embedding.theta, index / count));
        break;
      case RopeScaling::Type::kYarn: {
        const double ramp = std::clamp((index - low) / (high - low), 0.0, 1.0);
        multiplier = ramp / scaling.factor + (1 - ramp);
        break;
      }
    }
  }
  return multipliers;
}

}  // namespace kvcompress
