// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/klt/rounding.h"

#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include "codecs/ecsq/borders.h"
#include "codecs/ecsq/format.h"
#include "codecs/ecsq/tables.h"
#include "codecs/klt/format.h"
#include "codecs/klt/trellis.h"
#include "kernels/kernels.h"

namespace kvcompress::klt {
namespace {

// Squared error, in squared steps of the token, that a bit is worth: twice what
// it is without a trellis, which has levels twice as close and more of a
// choice.
constexpr float kTrellisErrorPerBit = 0.05f;

// Coefficients over the step of their token.
class Scale {
 public:
  explicit Scale(const RoundingInput& input) {
    for (const int8_t offset : input.offsets) {
      factors_.push_back(1 / StepFactor(offset));
    }
  }
  float Exact(float coefficient, size_t token) const {
    return std::clamp<float>(coefficient * factors_[token],
                             -ecsq::kMaxQuantum + 2, ecsq::kMaxQuantum - 2);
  }

 private:
  std::vector<float> factors_;
};

}  // namespace

void Round(const RoundingInput& input, absl::Span<const uint8_t> classes,
           int32_t* levels) {
  const size_t n = classes.size();
  const std::vector<float> means(n);  // zeros
  // Where the borders of each direction begin, by offset.
  std::map<int, std::vector<int32_t>> borders;
  for (size_t t = input.first_token; t < input.offsets.size(); ++t) {
    const int offset = input.offsets[t];
    kernels::QuantizeStep step = {.inverse = 1 / StepFactor(offset),
                                  .means = means.data()};
    if (offset < input.fine) {
      std::vector<int32_t>& begins = borders[offset];
      if (begins.empty()) {
        for (const uint8_t klass : classes) {
          begins.push_back(ecsq::Borders::Begin(ClassAt(klass, offset)));
        }
      }
      step.borders = ecsq::GetBorders().values.data();
      step.border = begins.data();
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
  TrellisEncoder encoder;
  std::vector<TrellisInput> numbers(tokens);
  std::vector<int32_t> quanta(tokens);
  for (size_t c = 0; c < n; ++c) {
    for (size_t i = 0; i < tokens; ++i) {
      const size_t t = input.first_token + i;
      const int offset = input.offsets[t];
      numbers[i] = {
          .exact = scale.Exact(input.coefficients[t * n + c], t),
          .klass = ClassAt(classes[c], offset),
          .error_per_bit = offset >= input.fine ? 0 : kTrellisErrorPerBit};
    }
    encoder.Quantize(numbers, quanta.data());
    uint8_t state = 0;
    for (size_t i = 0; i < tokens; ++i) {
      levels[(input.first_token + i) * n + c] =
          LevelOf(quanta[i], IsOddState(state));
      state = NextState(state, quanta[i]);
    }
  }
}

void ChooseClasses(const RoundingInput& input, bool trellis,
                   const int32_t* levels, absl::Span<uint8_t> classes) {
  constexpr int kBelow = 3;
  constexpr int kAbove = 1;
  constexpr size_t kChoices = kBelow + 1 + kAbove;
  const ecsq::Tables& tables = ecsq::GetTables();
  const size_t n = classes.size();
  std::vector<std::array<uint64_t, kChoices>> costs(n);
  std::vector<uint8_t> states(n);
  for (size_t t = input.first_token; t < input.offsets.size(); ++t) {
    for (size_t c = 0; c < n; ++c) {
      const bool odd = IsOddState(states[c]);
      int32_t quantum = levels[t * n + c];
      if (trellis) {
        quantum = QuantumOf(quantum, odd);
        states[c] = NextState(states[c], quantum);
      }
      const int lowest = classes[c] + input.offsets[t] - kBelow;
      for (size_t i = 0; i < kChoices; ++i) {
        const ecsq::SplitClass split(std::clamp<int>(
            lowest + static_cast<int>(i), 0, ecsq::kClasses - 1));
        costs[c][i] +=
            256u * static_cast<uint32_t>(split.low_bits) +
            tables.Cost(TableOf(split, odd), quantum >> split.low_bits);
      }
    }
  }
  for (size_t c = 0; c < n; ++c) {
    size_t best = kBelow;
    for (size_t i = 0; i < kChoices; ++i) {
      const int klass = classes[c] - kBelow + static_cast<int>(i);
      if (klass >= 0 && klass < ecsq::kClasses &&
          costs[c][i] < costs[c][best]) {
        best = i;
      }
    }
    classes[c] =
        static_cast<uint8_t>(classes[c] - kBelow + static_cast<int>(best));
  }
}

}  // namespace kvcompress::klt
