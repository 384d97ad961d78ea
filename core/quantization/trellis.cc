// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "quantization/trellis.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "quantization/steps.h"

namespace kvcompress::coding {
namespace {

constexpr float kUnreachable = 1e30f;

// A branch into a state: the state before, and the parity that leads on.
struct Branch {
  uint8_t from;
  uint8_t choice;  // the index of Choices::quanta
};

using Branches = std::array<std::array<Branch, 2>, kTrellisStates>;

Branches MakeBranches() {
  Branches branches = {};
  size_t counts[kTrellisStates] = {};
  for (uint8_t from = 0; from < kTrellisStates; ++from) {
    for (uint8_t parity = 0; parity < 2; ++parity) {
      const uint8_t to = NextState(from, parity);
      branches[to][counts[to]++] = {
          from, static_cast<uint8_t>(2 * IsOddState(from) + parity)};
    }
  }
  return branches;
}

}  // namespace

// Of each quantizer the two quanta around the value, which have different
// parities, and zero instead of the even one where it costs less.
void TrellisEncoder::Choose(const TrellisInput& input, Choices* choices,
                            float* costs) {
  const Tables& tables = GetTables();
  const SplitClass split(input.klass);
  const float per_unit = input.error_per_bit / 256;
  // Half steps of magnitude; levels lie symmetrically.
  const float size = std::min(std::abs(2 * input.exact),
                              static_cast<float>(2 * kMaxQuantum - 4));
  const int32_t sign = input.exact < 0 ? -1 : 1;
  int32_t* const quanta = choices->quanta;
  for (int odd = 0; odd < 2; ++odd) {
    const size_t table = TableOf(split, odd != 0);
    const auto cost = [&](int32_t quantum) {
      const float error = size - static_cast<float>(LevelOf(quantum, odd != 0));
      const uint32_t bits =
          tables.Cost(table, sign * quantum >> split.low_bits);
      return 0.25f * error * error + static_cast<float>(bits) * per_unit;
    };
    const auto even = 2 * static_cast<size_t>(odd);
    const int32_t below =
        static_cast<int32_t>(0.5f * (size + (odd != 0 ? 1.0f : 0.0f)));
    for (const int32_t quantum : {below, below + 1}) {
      const size_t choice = even + static_cast<size_t>(quantum & 1);
      costs[choice] = cost(quantum);
      quanta[choice] = sign * quantum;
    }
    if (below > 0) {
      const float zero = cost(0);
      if (zero < costs[even]) {
        costs[even] = zero;
        quanta[even] = 0;
      }
    }
  }
}

// The Viterbi algorithm: forward, the least cost of each state after each
// quantum and the branch that led to it; then back along the best branches.
void TrellisEncoder::Quantize(absl::Span<const TrellisInput> input,
                              int32_t* quanta) {
  static const Branches branches = MakeBranches();
  choices_.resize(input.size());
  branches_.resize(input.size());
  float costs[kTrellisStates];
  std::fill(costs, costs + kTrellisStates, kUnreachable);
  costs[0] = 0;
  for (size_t t = 0; t < input.size(); ++t) {
    float choice_costs[4];
    Choose(input[t], &choices_[t], choice_costs);
    float next[kTrellisStates];
    uint8_t bits = 0;
    for (size_t state = 0; state < kTrellisStates; ++state) {
      const auto& [first, second] = branches[state];
      const float a = costs[first.from] + choice_costs[first.choice];
      const float b = costs[second.from] + choice_costs[second.choice];
      next[state] = std::min(a, b);
      bits |= static_cast<uint8_t>((b < a) << state);
    }
    branches_[t] = bits;
    std::copy(next, next + kTrellisStates, costs);
  }
  size_t state = std::min_element(costs, costs + kTrellisStates) - costs;
  for (size_t t = input.size(); t-- > 0;) {
    const Branch& branch = branches[state][branches_[t] >> state & 1];
    quanta[t] = choices_[t].quanta[branch.choice];
    state = branch.from;
  }
}

}  // namespace kvcompress::coding
