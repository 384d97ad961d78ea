// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/klt/run_bases.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

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
                       Workers* workers, AtPlaces<EncoderMemory>* memory) {
  for (size_t i = 0; i < encoders.size(); ++i) {
    const Block& block = encoders[i].block();
    if (i % geometry_.token_parts() % kRun == 0) {
      for (size_t g = 0; g < geometry_.Groups(block); ++g) {
        groups_.push_back(
            {.run = run_tokens_.size(), .group = g, .first_block = i});
      }
      run_tokens_.push_back(0);
    }
    run_tokens_.back() += block.tokens;
    run_of_.push_back(run_tokens_.size() - 1);
  }
  ForEach(workers, groups_.size(), [&](size_t index, size_t place) {
    EncoderMemory& here = (*memory)[place];
    GroupOfRun& of = groups_[index];
    coding::Covariance covariance(
        geometry_.GroupSize(encoders[of.first_block].block(), of.group));
    for (size_t i = of.first_block; i < encoders.size() && run_of_[i] == of.run;
         ++i) {
      if (Stops(here.checkpoint)) return;
      encoders[i].Measure(of.group, &here, &covariance);
    }
    of.loadings = coding::FindLoadings(covariance, vectors);
  });
  for (BlockEncoder& encoder : encoders) encoder.FinishMeasuring();
}

void RunBases::MakeFor(double step, Workers* workers) {
  step_ = step;
  bases_.assign(run_tokens_.size(), Bases());
  struct OfGroup {
    std::optional<coding::Reflectors> reflectors;
    std::optional<coding::Matrix> matrix;
    std::optional<coding::Matrix> transposed;
  };
  std::vector<OfGroup> made(groups_.size());
  ForEach(workers, groups_.size(), [&](size_t index, size_t) {
    const GroupOfRun& of = groups_[index];
    const auto tokens = static_cast<double>(run_tokens_[of.run]);
    const double least = kLoadingUnit * std::pow(512.0 / tokens, 0.25) * step;
    const double noise = tokens < kFewTokens ? 0 : kLoadingNoise;
    OfGroup& group = made[index];
    group.reflectors = coding::MakeReflectors(
        of.loadings,
        std::max(least, std::sqrt(noise * of.loadings.residual / tokens)));
    group.matrix = coding::MakeMatrix(*group.reflectors);
    group.transposed = group.matrix->Transposed();
  });
  if (Stops(checkpoint_)) return;
  for (size_t index = 0; index < groups_.size(); ++index) {
    Bases& bases = bases_[groups_[index].run];
    bases.reflectors.push_back(*std::move(made[index].reflectors));
    bases.matrices.push_back(*std::move(made[index].matrix));
    bases.transposed.push_back(*std::move(made[index].transposed));
  }
}

}  // namespace kvcompress::klt
