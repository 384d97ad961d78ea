// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "profile/quanta_block.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace kvcompress::profile {
namespace {

// Quanta whose magnitudes have this sum fit 16 bits, and times 32767 they fit
// 31.
constexpr int64_t kMaxNarrow = 32767;
// A product with all rows of a matrix takes as long as sums of the rows that a
// token needs where these are such a part, measured with AVX-512 on 1024 and
// 3840 rows: 0.46 to 0.7.
constexpr double kDense = 0.6;
// Components that are taken into the former at once.
constexpr size_t kDenseStep = 32;

}  // namespace

int32_t TokenQuanta::quantum(size_t k) const {
  if (narrow_) return quanta_[k];
  int32_t quantum;
  std::memcpy(&quantum, quanta_ + 2 * k, sizeof(quantum));
  return quantum;
}

void QuantaBlock::Append(absl::Span<const BlockReader::Level> levels) {
  int64_t sum = 0;
  for (const BlockReader::Level& each : levels) sum += std::abs(each.value);
  if (!levels.empty()) {
    components_end_ =
        std::max<size_t>(components_end_, levels.back().component + 1u);
  }
  Append(levels, sum <= kMaxNarrow);
}

void QuantaBlock::Append(absl::Span<const BlockReader::Level> levels,
                         bool narrow) {
  const size_t padded = (levels.size() + kernels::kRowsAtOnce - 1) /
                        kernels::kRowsAtOnce * kernels::kRowsAtOnce;
  const size_t first = components_.size();
  const size_t begin = quanta_.size();
  components_.resize(first + padded);
  quanta_.resize(begin + (narrow ? padded : 2 * padded));
  for (size_t k = 0; k < levels.size(); ++k) {
    components_[first + k] = levels[k].component;
    if (narrow) {
      quanta_[begin + k] = static_cast<int16_t>(levels[k].value);
    } else {
      std::memcpy(&quanta_[begin + 2 * k], &levels[k].value, sizeof(int32_t));
    }
  }
  places_.push_back({components_.size(), quanta_.size()});
  narrow_.push_back(narrow);
}

TokenQuanta QuantaBlock::At(size_t token) const {
  const Place& place = places_[token];
  const size_t count = places_[token + 1].component - place.component;
  return {absl::MakeConstSpan(components_).subspan(place.component, count),
          quanta_.data() + place.quantum, narrow_[token]};
}

size_t QuantaBlock::DenseComponents(size_t components) const {
  std::vector<int64_t> counts(components / kDenseStep);
  for (size_t t = 0; t < tokens(); ++t) {
    const TokenQuanta token = At(t);
    for (size_t k = 0; token.narrow() && k < token.size(); ++k) {
      const size_t step = token.component(k) / kDenseStep;
      if (step < counts.size() && token.quantum(k) != 0) ++counts[step];
    }
  }
  const auto least =
      static_cast<int64_t>(kDense * static_cast<double>(tokens() * kDenseStep));
  int64_t gain = 0;
  int64_t most = 0;
  size_t best = 0;
  for (size_t step = 0; step < counts.size(); ++step) {
    gain += counts[step] - least;
    if (gain <= most) continue;
    most = gain;
    best = step + 1;
  }
  return best * kDenseStep;
}

void QuantaBlock::MakeDense(size_t components) {
  const size_t inner = DenseComponents(components);
  if (inner == 0) return;
  QuantaBlock made;
  made.inner_ = inner;
  made.dense_.resize(tokens() * inner);
  std::vector<BlockReader::Level> others;
  for (size_t t = 0; t < tokens(); ++t) {
    const TokenQuanta token = At(t);
    others.clear();
    for (size_t k = 0; k < token.size(); ++k) {
      const uint16_t component = token.component(k);
      const int32_t quantum = token.quantum(k);
      if (quantum == 0) continue;
      if (token.narrow() && component < inner) {
        made.dense_[t * inner + component] = static_cast<int16_t>(quantum);
      } else {
        others.push_back({component, quantum});
      }
    }
    made.Append(others, token.narrow());
  }
  made.components_end_ = components_end_;
  *this = std::move(made);
}

}  // namespace kvcompress::profile
