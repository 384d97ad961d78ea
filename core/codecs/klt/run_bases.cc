// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/klt/run_bases.h"

#include <cmath>

namespace kvcompress::klt {
namespace {

// The least unit of loadings in steps for 512 tokens; it falls with their
// root's root, as the basis of more tokens is worth more bits.
constexpr double kLoadingUnit = 0.05;
// Rounded to units u, one more vector adds u^2 / 12 to the variance v that the
// basis leaves in each channel, which takes t u^2 / (24 v) nats a channel of t
// tokens; twice the unit saves one bit. That balances at u^2 = 12 v / t, and
// the shorter vectors are not sent at all: measured, twice as much is best.
constexpr double kLoadingNoise = 24;
// Tokens from which on that was measured.
constexpr double kFewTokens = 128;

}  // namespace

size_t VectorsFor(TensorRole role, uint64_t tokens) {
  if (tokens < 128) return 0;
  const bool value = role == TensorRole::kValue;
  if (tokens < 256) return value ? 0 : 8;
  if (tokens < 512) return value ? 16 : 32;
  return tokens < 1024 ? 64 : 96;
}

void RunBases::Analyze(absl::Span<BlockEncoder> encoders, size_t vectors,
                       EncoderMemory* memory) {
  std::vector<coding::Covariance> covariances;  // of the run's groups
  for (size_t i = 0; i < encoders.size(); ++i) {
    const Block& block = encoders[i].block();
    const uint64_t part = i % geometry_.token_parts();
    const size_t groups = geometry_.Groups(block);
    if (part % kRun == 0) {
      run_tokens_.push_back(0);
      covariances.clear();
      for (size_t g = 0; g < groups; ++g) {
        covariances.emplace_back(geometry_.GroupSize(block, g));
      }
    }
    for (size_t g = 0; g < groups; ++g) {
      if (Stops(checkpoint_)) return;
      encoders[i].Measure(g, memory, &covariances[g]);
    }
    run_tokens_.back() += block.tokens;
    run_of_.push_back(run_tokens_.size() - 1);
    if ((part + 1) % kRun != 0 && part + 1 != geometry_.token_parts()) continue;
    loadings_.emplace_back();
    for (const coding::Covariance& covariance : covariances) {
      if (Stops(checkpoint_)) return;
      loadings_.back().push_back(coding::FindLoadings(covariance, vectors));
    }
  }
}

void RunBases::MakeFor(double step) {
  step_ = step;
  bases_.clear();
  for (size_t run = 0; run < loadings_.size(); ++run) {
    if (Stops(checkpoint_)) return;
    const auto tokens = static_cast<double>(run_tokens_[run]);
    const double least = kLoadingUnit * std::pow(512.0 / tokens, 0.25) * step;
    std::vector<double> units;
    for (const coding::Loadings& each : loadings_[run]) {
      const double noise = tokens < kFewTokens ? 0 : kLoadingNoise;
      units.push_back(
          std::max(least, std::sqrt(noise * each.residual / tokens)));
    }
    bases_.emplace_back(loadings_[run], units, checkpoint_);
  }
}

}  // namespace kvcompress::klt
