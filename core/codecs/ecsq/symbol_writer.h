// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Collects the symbols of a block in the decoder's order, row by row, with what
// travels beside them: escapes and low bits.

#ifndef KVCOMPRESS_CODECS_ECSQ_SYMBOL_WRITER_H_
#define KVCOMPRESS_CODECS_ECSQ_SYMBOL_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "codecs/ecsq/bits.h"
#include "codecs/ecsq/rans.h"

namespace kvcompress::ecsq {

class SymbolWriter {
 public:
  // For about so many rows.
  explicit SymbolWriter(size_t rows) : bits_(&low_bits_) {
    rows_.reserve(rows * kMaxLanes);
  }

  // Codes `value` in a lane, the next of its row. Lane 0 begins a row.
  void Put(size_t lane, size_t table, int32_t value, int low_bits) {
    if (lane == 0) AddRows(1);
    rows_[rows_.size() - kMaxLanes + lane] = Code(table, value, low_bits);
  }
  // The symbol (CodedSymbol) of `value`, the next that has low bits or is an
  // escape: its low bits are sent as they are, the rest under a table.
  uint16_t Code(size_t table, int32_t value, int low_bits);
  // Begins rows whose symbols the caller fills in, until the next call.
  absl::Span<uint16_t> AddRows(size_t count) {
    rows_.resize(rows_.size() + count * kMaxLanes, kNoSymbol);
    return absl::MakeSpan(rows_).last(count * kMaxLanes);
  }
  // Codes numbers in rows of `lanes` under one table.
  void PutRows(absl::Span<const int32_t> values, size_t table, size_t lanes);
  // Sends the low bits of a number that is coded elsewhere.
  void PutLowBits(int32_t value, int count) {
    bits_.Put(static_cast<uint32_t>(value), count);
  }
  void Finish() { bits_.Finish(); }

  // kMaxLanes symbols each; kNoSymbol in lanes that have none.
  const std::vector<uint16_t>& rows() const { return rows_; }
  const std::string& escapes() const { return escapes_; }
  const std::string& low_bits() const { return low_bits_; }

 private:
  const Tables& tables_ = GetTables();
  std::vector<uint16_t> rows_;
  std::string escapes_;
  std::string low_bits_;
  BitWriter bits_;
};

// The table that codes `values`, less `middle` and without their `shift` lowest
// bits, in the fewest bits; and those bits, in 1/256, low bits included.
struct TableFit {
  size_t table = 0;
  uint64_t cost = 0;
};
TableFit FitTable(absl::Span<const int32_t> values, int32_t middle, int shift);

}  // namespace kvcompress::ecsq

#endif  // KVCOMPRESS_CODECS_ECSQ_SYMBOL_WRITER_H_
