// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/klt/rounding.h"

#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include "absl/base/attributes.h"
#include "codecs/klt/format.h"
#include "entropy/tables.h"
#include "kernels/kernels.h"
#include "quantization/decision_thresholds.h"
#include "quantization/steps.h"
#include "quantization/trellis.h"

namespace kvcompress::klt {
namespace {

// Squared error, in squared steps of the token, that a bit is worth: twice what
// it is without a trellis, which has levels twice as close and more of a
// choice.
constexpr float kTrellisErrorPerBit = 0.05f;

// Classes that are tried: from so many below on.
constexpr int kBelow = 3;
constexpr size_t kChoices = 5;

// The class of a choice at tokens of an offset.
int ChoiceOf(uint8_t klass, int offset, size_t choice) {
  return std::clamp<int>(klass + offset - kBelow + static_cast<int>(choice), 0,
                         coding::kClasses - 1);
}

// Bits of a quantum, in 1/256.
uint32_t CostOf(int klass, bool odd, int32_t quantum) {
  const coding::SplitClass split(klass);
  return 256u * static_cast<uint32_t>(split.low_bits) +
         coding::GetTables().Cost(coding::TableOf(split, odd),
                                  quantum >> split.low_bits);
}

// How often components have each of the quanta near zero, without low bits that
// all choices send as they are.
class QuantumCounts {
 public:
  explicit QuantumCounts(size_t components)
      : counts_(components * kQuanta), low_bits_(components) {}

  // Begins with no counts, of tokens of an offset. `classes` may be those of
  // fewer components, which then repeat.
  void Clear(absl::Span<const uint8_t> classes, int offset) {
    std::fill(counts_.begin(), counts_.end(), int16_t{0});
    for (size_t i = 0; i < low_bits_.size(); ++i) {
      const uint8_t klass = classes[i % classes.size()];
      low_bits_[i] = coding::SplitClass(ChoiceOf(klass, offset, 0)).low_bits;
    }
  }
  // Adds those of components from `first` on. Stops at one whose quantum is not
  // one of those that are counted, or at `end`, and returns its number.
  // Inlined, it would be short of registers.
  ABSL_ATTRIBUTE_NOINLINE size_t AddRow(const int32_t* quanta, size_t first,
                                        size_t end) {
    int16_t* counts = counts_.data() + first * kQuanta;
    for (; first < end; ++first, counts += kQuanta) {
      const uint32_t place = PlaceOf(quanta[first], low_bits_[first]);
      if (place >= kQuanta) break;
      ++counts[place];
    }
    return first;
  }
  // False when the quantum is not one of those.
  bool Add(size_t component, int32_t quantum) {
    const uint32_t place = PlaceOf(quantum, low_bits_[component]);
    if (place >= kQuanta) return false;
    ++counts_[component * kQuanta + place];
    return true;
  }
  // Bits of all that were counted, in 1/256, and without those low bits.
  uint64_t Cost(size_t component, int klass, bool odd) const {
    static const Costs* const costs = MakeCosts();
    const int low_bits = low_bits_[component];
    // Four classes less are a bit less; see SplitClass. Those with low bits
    // have no odd tables.
    const int16_t* const each =
        (*costs)[odd && low_bits == 0][static_cast<size_t>(klass) -
                                       4 * static_cast<size_t>(low_bits)];
    const int16_t* const count = &counts_[component * kQuanta];
    // At most 1024 tokens of below 2^14: a sum that fits.
    int32_t sum = 0;
    for (size_t i = 0; i < kQuanta; ++i) sum += int32_t{count[i]} * each[i];
    return static_cast<uint64_t>(sum);
  }

 private:
  static constexpr int32_t kMax = 32;
  static constexpr size_t kQuanta = size_t{2} * kMax;
  using Costs = int16_t[2][coding::kClasses][kQuanta];

  static uint32_t PlaceOf(int32_t quantum, int low_bits) {
    return static_cast<uint32_t>((quantum >> low_bits) + kMax);
  }
  static const Costs* MakeCosts() {
    auto* const costs = new Costs[1];
    for (size_t odd = 0; odd < 2; ++odd) {
      for (int klass = 0; klass < coding::kClasses; ++klass) {
        for (size_t i = 0; i < kQuanta; ++i) {
          costs[0][odd][klass][i] = static_cast<int16_t>(
              CostOf(klass, odd != 0, static_cast<int32_t>(i) - kMax));
        }
      }
    }
    return costs;
  }

  std::vector<int16_t> counts_;
  std::vector<int> low_bits_;  // that are left out
};

// Whether the state of each component at each token is an odd one.
std::vector<uint8_t> OddStates(const RoundingInput& input,
                               const int32_t* levels, size_t n) {
  std::vector<uint8_t> odd(input.offsets.size() * n);
  std::vector<uint8_t> states(n);
  for (size_t t = input.first_token; t < input.offsets.size(); ++t) {
    for (size_t c = 0; c < n; ++c) {
      const bool is_odd = coding::IsOddState(states[c]);
      odd[t * n + c] = is_odd ? 1 : 0;
      states[c] = coding::NextState(
          states[c], coding::QuantumOf(levels[t * n + c], is_odd));
    }
  }
  return odd;
}

// What the levels of each component cost under each choice of its class.
class ChoiceCosts {
 public:
  using TokensByOffset = std::map<int, std::vector<size_t>>;

  // `classes` outlive this.
  explicit ChoiceCosts(absl::Span<const uint8_t> classes)
      : classes_(classes), costs_(classes.size()) {}

  // Adds those of tokens, [tokens, components].
  void Add(const TokensByOffset& tokens, const int32_t* levels) {
    const size_t n = classes_.size();
    QuantumCounts counts(n);
    for (const auto& [offset, some] : tokens) {
      counts.Clear(classes_, offset);
      for (const size_t t : some) {
        const int32_t* const row = levels + t * n;
        for (size_t c = counts.AddRow(row, 0, n); c < n;
             c = counts.AddRow(row, c + 1, n)) {
          AddUncounted(c, offset, false, row[c]);
        }
      }
      AddCounted(counts, 0, offset, false);
    }
  }
  // The same of levels that follow a trellis, in states that are odd or not.
  void AddTrellis(const TokensByOffset& tokens, const int32_t* levels,
                  absl::Span<const uint8_t> odd) {
    const size_t n = classes_.size();
    QuantumCounts counts(2 * n);  // in even states, then in odd ones
    for (const auto& [offset, some] : tokens) {
      counts.Clear(classes_, offset);
      for (const size_t t : some) {
        for (size_t c = 0; c < n; ++c) {
          const bool is_odd = odd[t * n + c] != 0;
          const int32_t quantum = coding::QuantumOf(levels[t * n + c], is_odd);
          if (!counts.Add(is_odd ? n + c : c, quantum)) {
            AddUncounted(c, offset, is_odd, quantum);
          }
        }
      }
      AddCounted(counts, 0, offset, false);
      AddCounted(counts, n, offset, true);
    }
  }

  // The class that costs least, the present one where none costs less.
  uint8_t Best(size_t c) const {
    const auto class_of = [&](size_t choice) {
      return classes_[c] - kBelow + static_cast<int>(choice);
    };
    size_t best = kBelow;
    for (size_t i = 0; i < kChoices; ++i) {
      if (class_of(i) >= 0 && class_of(i) <= kMaxClass &&
          costs_[c][i] < costs_[c][best]) {
        best = i;
      }
    }
    return static_cast<uint8_t>(class_of(best));
  }

 private:
  void AddUncounted(size_t c, int offset, bool odd, int32_t quantum) {
    for (size_t i = 0; i < kChoices; ++i) {
      costs_[c][i] += CostOf(ChoiceOf(classes_[c], offset, i), odd, quantum);
    }
  }
  // Those whose counts begin with number `first`.
  void AddCounted(const QuantumCounts& counts, size_t first, int offset,
                  bool odd) {
    for (size_t c = 0; c < classes_.size(); ++c) {
      for (size_t i = 0; i < kChoices; ++i) {
        costs_[c][i] +=
            counts.Cost(first + c, ChoiceOf(classes_[c], offset, i), odd);
      }
    }
  }

  const absl::Span<const uint8_t> classes_;
  std::vector<std::array<uint64_t, kChoices>> costs_;
};

// Coefficients over the step of their token.
class Scale {
 public:
  explicit Scale(const RoundingInput& input) {
    for (const int8_t offset : input.offsets) {
      factors_.push_back(1 / coding::StepFactor(offset));
    }
  }
  float Exact(float coefficient, size_t token) const {
    return std::clamp<float>(coefficient * factors_[token],
                             -coding::kMaxQuantum + 2, coding::kMaxQuantum - 2);
  }

 private:
  std::vector<float> factors_;
};

}  // namespace

void Round(const RoundingInput& input, absl::Span<const uint8_t> classes,
           int32_t* levels) {
  const size_t n = classes.size();
  const std::vector<float> means(n);  // zeros
  // Where the thresholds of each component begin, by offset.
  std::map<int, std::vector<int32_t>> thresholds;
  for (size_t t = input.first_token; t < input.offsets.size(); ++t) {
    const int offset = input.offsets[t];
    kernels::QuantizeStep step = {.inverse = 1 / coding::StepFactor(offset),
                                  .means = means.data()};
    if (offset < input.fine) {
      std::vector<int32_t>& begins = thresholds[offset];
      if (begins.empty()) {
        for (const uint8_t klass : classes) {
          begins.push_back(
              coding::DecisionThresholds::Begin(ClassAt(klass, offset)));
        }
      }
      step.thresholds = coding::GetDecisionThresholds().values.data();
      step.threshold_offsets = begins.data();
    }
    kernels::Active().rows.quantize(&input.coefficients[t * n], 1, n, step,
                                    levels + t * n);
  }
}

void RoundByTrellis(const RoundingInput& input,
                    absl::Span<const uint8_t> classes, int32_t* levels) {
  const Scale scale(input);
  const size_t n = classes.size();
  const size_t tokens = input.offsets.size() - input.first_token;
  coding::TrellisEncoder encoder;
  std::vector<coding::TrellisInput> inputs(tokens);
  std::vector<int32_t> quanta(tokens);
  for (size_t c = 0; c < n && !Stops(input.checkpoint); ++c) {
    for (size_t i = 0; i < tokens; ++i) {
      const size_t t = input.first_token + i;
      const int offset = input.offsets[t];
      inputs[i] = {
          .exact = scale.Exact(input.coefficients[t * n + c], t),
          .klass = ClassAt(classes[c], offset),
          .error_per_bit = offset >= input.fine ? 0 : kTrellisErrorPerBit};
    }
    encoder.Quantize(inputs, quanta.data());
    uint8_t state = 0;
    for (size_t i = 0; i < tokens; ++i) {
      levels[(input.first_token + i) * n + c] =
          coding::LevelOf(quanta[i], coding::IsOddState(state));
      state = coding::NextState(state, quanta[i]);
    }
  }
}

void ChooseClasses(const RoundingInput& input, bool trellis,
                   const int32_t* levels, absl::Span<uint8_t> classes) {
  std::map<int, std::vector<size_t>> tokens;  // by offset
  for (size_t t = input.first_token; t < input.offsets.size(); ++t) {
    tokens[input.offsets[t]].push_back(t);
  }
  ChoiceCosts costs(classes);
  if (trellis) {
    costs.AddTrellis(tokens, levels, OddStates(input, levels, classes.size()));
  } else {
    costs.Add(tokens, levels);
  }
  for (size_t c = 0; c < classes.size(); ++c) classes[c] = costs.Best(c);
}

}  // namespace kvcompress::klt
