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
// A run is looked at in every other of its tokens. Shorter runs come again in
// any text: they are names.
constexpr size_t kLooks = 4;
constexpr size_t kGap = 2;                        // tokens between two looks
constexpr size_t kRun = (kLooks - 1) * kGap + 1;  // tokens
constexpr size_t kHeads = 4;
constexpr size_t kRuns = 64;                 // of all heads
constexpr size_t kMinRuns = 9;               // that a text has room for
constexpr size_t kTokens = size_t{1} << 15;  // the newest
constexpr size_t kTokensAtOnce = 32;
// Cosines, in the mean over the looks, of what is a repetition; and shares of
// such runs from which on a text begins to count as one that repeats itself,
// and does in full: measured on SmolLM2-135M and Gemma 3 270M.
constexpr float kAlike = 0.8f;
constexpr double kMinShare = 0.02;
constexpr double kMaxShare = 0.2;

// Cosines of one run's looks with all tokens before it, token by token.
struct Query {
  size_t first = 0;  // token
  std::vector<float> rows;
  // By the first token of an earlier run, modulo kRun: the sum of its looks.
  std::array<float, kRun> sums;
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

// Takes token t of the head, which is before the query's run, after all from
// `begin` on. Looks only where there can still be a repetition.
void Compare(const float* row, size_t channels, size_t begin, size_t t,
             Query* query) {
  for (size_t i = 0; i < kLooks && t >= begin + i * kGap; ++i) {
    float& sum = query->sums[(t - i * kGap) % kRun];
    if (i == 0) sum = 0;
    if (sum + static_cast<float>(kLooks - i) <= kLooks * kAlike) continue;
    sum += Dot(row, &query->rows[i * channels], channels);
    if (i + 1 == kLooks && sum > kLooks * kAlike) query->found = true;
  }
}

}  // namespace

double Repetition(const Geometry& geometry, LoadTokens load,
                  Checkpoint* checkpoint) {
  const size_t channels = geometry.channels();
  const size_t end = geometry.tokens();
  const size_t begin = std::max(kSinks, end - std::min(end, kTokens));
  if (end < begin + kMinRuns * kRun) return 0;
  std::vector<float> values(kTokensAtOnce * channels);
  size_t found = 0;
  size_t asked = 0;
  const size_t heads = std::min(geometry.heads(), kHeads);
  const size_t runs = std::min(kRuns / heads, 2 * (end - begin) / kRun);
  for (size_t h = 0; h < heads; ++h) {
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
    std::vector<Query> queries(runs);
    for (size_t i = 0; i < queries.size(); ++i) {
      queries[i].first =
          begin + (end - begin - kRun) * (i + 1) / queries.size();
      queries[i].rows.resize(kLooks * channels);
      for (size_t look = 0; look < kLooks; ++look) {
        const size_t t = queries[i].first + look * kGap;
        float* const row = &queries[i].rows[look * channels];
        load(h, t, t + 1, row);
        Normalize(mean, row);
      }
    }
    for_each_row([&](size_t t, float* row) {
      Normalize(mean, row);
      for (Query& query : queries) {
        if (t < query.first && !query.found) {
          Compare(row, channels, begin, t, &query);
        }
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
