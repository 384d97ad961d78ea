// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/klt/repeats.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <vector>

#include "tensor/dot.h"

namespace kvcompress::klt {
namespace {

// Attention sinks are like no other token.
constexpr size_t kSinks = 4;
constexpr size_t kRun = 4;  // tokens
constexpr size_t kHeads = 4;
constexpr size_t kRuns = 16;                 // of a head
constexpr size_t kTokens = size_t{1} << 15;  // the newest
constexpr size_t kTokensAtOnce = 32;
// Cosines, in the mean over a run, of what is a repetition; and shares of such
// runs from which on a text begins to count as one that repeats itself, and
// does in full: measured on SmolLM2-135M and Gemma 3 270M.
constexpr float kAlike = 0.8f;
constexpr double kMinShare = 0.04;
constexpr double kMaxShare = 0.08;
// Below any sum of cosines.
constexpr float kHopeless = -100;

// Cosines of one run's tokens with all before it, token by token.
struct Query {
  size_t first = 0;  // token
  std::vector<float> rows;
  // Of the last tokens: sums over the first 1, 2 and 3 tokens of the run.
  std::array<float, kRun - 1> sums = {kHopeless, kHopeless, kHopeless};
  bool found = false;
};

void Normalize(const std::vector<float>& mean, float* row) {
  float squares = 0;
  for (size_t c = 0; c < mean.size(); ++c) {
    row[c] -= mean[c];
    squares += row[c] * row[c];
  }
  const float inverse = squares > 0 ? 1 / std::sqrt(squares) : 0;
  for (size_t c = 0; c < mean.size(); ++c) row[c] *= inverse;
}

// Takes the next token of the head, which is before the query's run. Of the
// run's tokens only those are looked at that can still be part of a repetition.
void Compare(const float* row, size_t channels, Query* query) {
  for (size_t i = kRun; i-- > 0;) {
    const float before = i == 0 ? 0 : query->sums[i - 1];
    const auto left = static_cast<float>(kRun - i);
    float sum = kHopeless;
    if (before + left > kRun * kAlike) {
      sum = before + Dot(row, &query->rows[i * channels], channels);
    }
    if (i == kRun - 1) {
      query->found = query->found || sum > kRun * kAlike;
    } else {
      query->sums[i] = sum;
    }
  }
}

}  // namespace

double Repetition(const Geometry& geometry, LoadTokens load,
                  Checkpoint* checkpoint) {
  const size_t channels = geometry.channels();
  const size_t end = geometry.tokens();
  const size_t begin = std::max(kSinks, end - std::min(end, kTokens));
  if (end < begin + 16 * kRun) return 0;
  std::vector<float> values(kTokensAtOnce * channels);
  size_t found = 0;
  size_t asked = 0;
  for (size_t h = 0; h < std::min(geometry.heads(), kHeads); ++h) {
    std::vector<float> mean(channels);
    const auto for_each_row = [&](auto visit) {
      for (size_t first = begin; first < end; first += kTokensAtOnce) {
        if (Stops(checkpoint)) return;
        const size_t last = std::min(end, first + kTokensAtOnce);
        load(h, first, last, values.data());
        for (size_t t = first; t < last; ++t) {
          visit(t, &values[(t - first) * channels]);
        }
      }
    };
    for_each_row([&](size_t, const float* row) {
      for (size_t c = 0; c < channels; ++c) mean[c] += row[c];
    });
    for (float& each : mean) each /= static_cast<float>(end - begin);
    std::vector<Query> queries(std::min(kRuns, (end - begin) / (2 * kRun)));
    for (size_t i = 0; i < queries.size(); ++i) {
      queries[i].first =
          begin + (end - begin - kRun) * (i + 1) / queries.size();
      queries[i].rows.resize(kRun * channels);
      load(h, queries[i].first, queries[i].first + kRun,
           queries[i].rows.data());
      for (size_t t = 0; t < kRun; ++t) {
        Normalize(mean, &queries[i].rows[t * channels]);
      }
    }
    for_each_row([&](size_t t, float* row) {
      Normalize(mean, row);
      for (Query& query : queries) {
        if (t < query.first && !query.found) Compare(row, channels, &query);
      }
    });
    asked += queries.size();
    for (const Query& query : queries) found += query.found ? 1 : 0;
  }
  const double share = static_cast<double>(found) / static_cast<double>(asked);
  return std::clamp((share - kMinShare) / (kMaxShare - kMinShare), 0.0, 1.0);
}

Preset Refined(const Preset& preset, double repetition) {
  Preset refined = preset;
  const auto coarse = [](double step) {
    return std::log2(std::max(step, 1.0));
  };
  refined.steps.value_step *=
      std::exp2(-repetition * coarse(preset.steps.value_step));
  refined.sharpening *=
      1 + repetition * std::min(coarse(preset.steps.key_step), 1.0);
  return refined;
}

}  // namespace kvcompress::klt
