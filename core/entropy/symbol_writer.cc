// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "entropy/symbol_writer.h"

#include <algorithm>

namespace kvcompress::coding {

void SymbolWriter::PutRows(absl::Span<const int32_t> values, size_t table,
                           size_t lanes) {
  for (; !values.empty();
       values.remove_prefix(std::min(lanes, values.size()))) {
    const absl::Span<uint16_t> row = AddRows(1);
    const size_t count = std::min(lanes, values.size());
    for (size_t i = 0; i < count; ++i) row[i] = Code(table, values[i], 0);
  }
}

TableFit FitTable(absl::Span<const int32_t> values, int32_t middle, int shift) {
  // The best is near that of the variance, and rather above it where there are
  // outliers.
  constexpr int kBelow = 3;
  constexpr int kAbove = 5;
  constexpr int kLast = static_cast<int>(kTables) - 1;
  const Tables& tables = GetTables();
  // How often each difference is there that a table can have, and how often one
  // that none has.
  constexpr int kMax = 127;
  uint32_t counts[2 * kMax + 1] = {};
  uint32_t beyond = 0;
  int32_t far = 0;  // one of those
  int least = kMax;
  int most = -kMax;
  double squares = 0;
  for (const int32_t value : values) {
    const int32_t difference = (value - middle) >> shift;
    squares += static_cast<double>(difference) * difference;
    if (difference < -kMax || difference > kMax) {
      ++beyond;
      far = difference;
    } else {
      ++counts[difference + kMax];
      least = std::min(least, difference);
      most = std::max(most, difference);
    }
  }
  const int nearest =
      std::min(ClassOf(squares / static_cast<double>(values.size())), kLast);
  TableFit best;
  const int first = std::max(0, nearest - kBelow);
  for (int table = first; table <= std::min(nearest + kAbove, kLast); ++table) {
    const size_t index = static_cast<size_t>(table);
    uint64_t cost = uint64_t{256} * shift * values.size();
    cost += uint64_t{beyond} * tables.Cost(index, far);
    for (int difference = least; difference <= most; ++difference) {
      cost +=
          uint64_t{counts[difference + kMax]} * tables.Cost(index, difference);
    }
    if (table == first || cost < best.cost) best = {index, cost};
  }
  return best;
}

}  // namespace kvcompress::coding
