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

void TrellisEncoder::Quantize(absl::Span<const TrellisInput> input,
                              int32_t* quanta) {
  static const Branches branches = MakeBranches();
  const Tables& tables = GetTables();
  choices_.resize(input.size());
  branches_.resize(input.size());
  float costs[kTrellisStates];
  std::fill(costs, costs + kTrellisStates, kUnreachable);
  costs[0] = 0;
  for (size_t t = 0; t < input.size(); ++t) {
    const SplitClass split(input[t].klass);
    const float per_unit = input[t].error_per_bit / 256;
    // Half steps of magnitude; levels lie symmetrically.
    const float size = std::min(std::abs(2 * input[t].exact),
                                static_cast<float>(2 * kMaxQuantum - 4));
    const int32_t sign = input[t].exact < 0 ? -1 : 1;
    int32_t* const chosen = choices_[t].quanta;
    float choice_costs[4];
    for (int odd = 0; odd < 2; ++odd) {
      const size_t table = TableOf(split, odd != 0);
      const auto cost = [&](int32_t quantum) {
        const float error =
            size - static_cast<float>(LevelOf(quantum, odd != 0));
        const uint32_t bits =
            tables.Cost(table, sign * quantum >> split.low_bits);
        return 0.25f * error * error + static_cast<float>(bits) * per_unit;
      };
      // The two levels around the number, of different parity, and zero.
      const int32_t below =
          static_cast<int32_t>(0.5f * (size + (odd != 0 ? 1.0f : 0.0f)));
      for (const int32_t quantum : {below, below + 1}) {
        const auto choice =
            2 * static_cast<size_t>(odd) + static_cast<size_t>(quantum & 1);
        choice_costs[choice] = cost(quantum);
        chosen[choice] = sign * quantum;
      }
      if (below > 0) {
        const float zero = cost(0);
        const auto even = 2 * static_cast<size_t>(odd);
        if (zero < choice_costs[even]) {
          choice_costs[even] = zero;
          chosen[even] = 0;
        }
      }
    }
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
