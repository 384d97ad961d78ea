// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/ecsq/symbol_writer.h"

#include <algorithm>

namespace kvcompress::ecsq {

uint16_t SymbolWriter::Code(size_t table, int32_t value, int low_bits) {
  if (low_bits > 0) PutLowBits(value, low_bits);
  const int32_t high = value >> low_bits;
  const int largest = tables_.largest[table];
  const bool fits = high >= -largest && high <= largest;
  const uint16_t symbol = CodedSymbol(table, fits ? high : kEscape);
  if (fits) return symbol;
  const bool small = high > INT16_MIN && high <= INT16_MAX;
  const int16_t first = static_cast<int16_t>(small ? high : INT16_MIN);
  escapes_.append(reinterpret_cast<const char*>(&first), sizeof(first));
  if (!small) {
    escapes_.append(reinterpret_cast<const char*>(&high), sizeof(high));
  }
  return symbol;
}

void SymbolWriter::PutRows(absl::Span<const int32_t> values, size_t table,
                           size_t lanes) {
  for (size_t i = 0; i < values.size(); ++i) {
    Put(i % lanes, table, values[i], 0);
  }
}

TableFit FitTable(absl::Span<const int32_t> values, int32_t middle, int shift) {
  // The best is near that of the variance, and rather above it where there are
  // outliers.
  constexpr int kBelow = 3;
  constexpr int kAbove = 5;
  constexpr int kLast = static_cast<int>(kTables) - 1;
  const Tables& tables = GetTables();
  double squares = 0;
  for (const int32_t value : values) {
    const double difference = (value - middle) >> shift;
    squares += difference * difference;
  }
  const int nearest =
      std::min(ClassOf(squares / static_cast<double>(values.size())), kLast);
  TableFit best;
  const int first = std::max(0, nearest - kBelow);
  for (int table = first; table <= std::min(nearest + kAbove, kLast); ++table) {
    const size_t index = static_cast<size_t>(table);
    uint64_t cost = uint64_t{256} * shift * values.size();
    for (const int32_t value : values) {
      cost += tables.Cost(index, (value - middle) >> shift);
    }
    if (table == first || cost < best.cost) best = {index, cost};
  }
  return best;
}

}  // namespace kvcompress::ecsq
