// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "coding/strip.h"

#include <algorithm>
#include <iterator>

namespace kvcompress::coding {

LaneCoding::LaneCoding() {
  std::fill(std::begin(tables), std::end(tables), kNoTable);
}

void LaneCoding::Set(size_t lane, const SplitClass& split) {
  const auto table = static_cast<size_t>(split.table);
  tables[lane] = static_cast<uint8_t>(table);
  low_counts[lane] = split.low_bits;
  if (split.low_bits > 0) low_lanes |= uint32_t{1} << lane;
  base[lane] = CodedSymbol(table, 0);
  most[lane] = GetTables().largest[table];
}

Strip::Strip(const Geometry& geometry, const Block& block,
             absl::Span<const uint8_t> classes, size_t first, int shift)
    : size(std::min(kMaxLanes, classes.size() - first)) {
  const size_t channels = geometry.channels();
  for (size_t lane = 0; lane < size; ++lane) {
    const size_t channel = first + lane;
    coding.Set(lane, SplitClass(classes[channel] + 4 * shift));
    position[lane] =
        channel / channels * block.tokens * channels + channel % channels;
  }
}

}  // namespace kvcompress::coding
