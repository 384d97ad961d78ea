// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Runs of tokens of a block that have the same step.

#ifndef KVCOMPRESS_CODING_IDENTITY_RUNS_H_
#define KVCOMPRESS_CODING_IDENTITY_RUNS_H_

#include <algorithm>
#include <cstddef>
#include <vector>

#include "absl/types/span.h"
#include "coding/format.h"
#include "coding/geometry.h"
#include "entropy/tables.h"

namespace kvcompress::coding {

// Tokens [begin, end) of a block, whose step is halved `shift` times.
struct Run {
  size_t begin = 0;
  size_t end = 0;
  int shift = 0;

  // What Strip::At is asked for.
  int offset() const { return 4 * shift; }
};
// The largest class of a channel at any shift.
inline constexpr int kMaxShiftedClass = kClasses - 1 + 4 * kMaxShift;

// The tokens of a block that are no 8-bit integers, in runs as long as can be.
inline std::vector<Run> RunsOf(const TensorHeader& header,
                               const Geometry& geometry, const Block& block) {
  std::vector<Run> runs;
  for (size_t t = header.Int8Sinks(block); t < block.tokens; ++t) {
    const int shift = header.ShiftOf(block.first_token + t, geometry.tokens());
    if (runs.empty() || runs.back().shift != shift) {
      runs.push_back({.begin = t, .end = t, .shift = shift});
    }
    runs.back().end = t + 1;
  }
  return runs;
}

// Visits what runs have of the tokens [begin, end): visit(begin, end, shift).
template <typename Visit>
void ForEachRun(absl::Span<const Run> runs, size_t begin, size_t end,
                Visit visit) {
  for (const Run& run : runs) {
    const size_t first = std::max(begin, run.begin);
    const size_t last = std::min(end, run.end);
    if (first < last) visit(first, last, run.shift);
  }
}

}  // namespace kvcompress::coding

#endif  // KVCOMPRESS_CODING_IDENTITY_RUNS_H_
