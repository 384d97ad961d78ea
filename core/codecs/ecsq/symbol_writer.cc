// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/ecsq/symbol_writer.h"

namespace kvcompress::ecsq {

void SymbolWriter::Put(size_t lane, size_t table, int32_t value, int low_bits) {
  if (low_bits > 0) PutLowBits(value, low_bits);
  const int32_t high = value >> low_bits;
  const int largest = tables_.largest[table];
  const bool fits = high >= -largest && high <= largest;
  symbols_.push_back({.lane = static_cast<uint8_t>(lane),
                      .table = static_cast<uint8_t>(table),
                      .symbol = static_cast<int8_t>(fits ? high : kEscape)});
  if (fits) return;
  const bool small = high > INT16_MIN && high <= INT16_MAX;
  const int16_t first = static_cast<int16_t>(small ? high : INT16_MIN);
  escapes_.append(reinterpret_cast<const char*>(&first), sizeof(first));
  if (!small) {
    escapes_.append(reinterpret_cast<const char*>(&high), sizeof(high));
  }
}

void SymbolWriter::PutRows(absl::Span<const int32_t> values, size_t table,
                           size_t lanes) {
  for (size_t i = 0; i < values.size(); ++i) {
    Put(i % lanes, table, values[i], 0);
  }
}

TableFit FitTable(absl::Span<const int32_t> values, int32_t middle, int shift) {
  const Tables& tables = GetTables();
  TableFit best;
  for (size_t table = 0; table < kTables; ++table) {
    uint64_t cost = uint64_t{256} * shift * values.size();
    for (const int32_t value : values) {
      cost += tables.Cost(table, (value - middle) >> shift);
    }
    if (table == 0 || cost < best.cost) best = {table, cost};
  }
  return best;
}

}  // namespace kvcompress::ecsq
