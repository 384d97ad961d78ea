// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Collects the symbols of a block in the decoder's order, row by row, with what
// travels next to them: escapes and low bits.

#ifndef KVCOMPRESS_ENTROPY_SYMBOL_WRITER_H_
#define KVCOMPRESS_ENTROPY_SYMBOL_WRITER_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "entropy/bits.h"
#include "entropy/escapes.h"
#include "entropy/rans.h"

namespace kvcompress::coding {

class SymbolWriter {
 public:
  // Rows go to the beginning of `*rows`, which grows as it must and outlives
  // this; what is in it means nothing.
  explicit SymbolWriter(std::vector<uint16_t>* rows)
      : rows_(*rows), bits_(&low_bits_) {}

  // Codes `value` in a lane, the next of its row. Lane 0 begins a row.
  void Put(size_t lane, size_t table, int32_t value, int low_bits) {
    if (lane == 0) AddRows(1);
    rows_[size_ - kMaxLanes + lane] = Code(table, value, low_bits);
  }
  // The symbol (CodedSymbol) of `value`, the next that has low bits or is an
  // escape: its low bits are sent as they are, the rest under a table.
  uint16_t Code(size_t table, int32_t value, int low_bits) {
    if (low_bits > 0) PutLowBits(value, low_bits);
    const int32_t high = value >> low_bits;
    const int largest = tables_.largest[table];
    const bool fits = high >= -largest && high <= largest;
    if (!fits) PutEscape(high);
    return CodedSymbol(table, fits ? high : kEscape);
  }
  // Lists the value of the next escape.
  void PutEscape(int32_t value) { coding::PutEscape(value, &escapes_); }
  // Begins rows whose symbols the caller fills in, until the next call: at
  // least those of the first `lanes` lanes.
  absl::Span<uint16_t> AddRows(size_t count, size_t lanes = 0) {
    const size_t first = size_;
    size_ += count * kMaxLanes;
    if (size_ > rows_.size()) rows_.resize(size_);
    const auto added = absl::MakeSpan(rows_).subspan(first, count * kMaxLanes);
    if (lanes < kMaxLanes) std::fill(added.begin(), added.end(), kNoSymbol);
    return added;
  }
  // Codes values in rows of `lanes` under one table.
  void PutRows(absl::Span<const int32_t> values, size_t table, size_t lanes);
  // Sends the low bits of a number that is coded elsewhere.
  void PutLowBits(int32_t value, int count) {
    bits_.Put(static_cast<uint32_t>(value), count);
  }
  void Finish() { bits_.Finish(); }

  // kMaxLanes symbols each; kNoSymbol in lanes that have none.
  absl::Span<const uint16_t> rows() const {
    return absl::MakeConstSpan(rows_).first(size_);
  }
  const std::string& escapes() const { return escapes_; }
  const std::string& low_bits() const { return low_bits_; }

 private:
  const Tables& tables_ = GetTables();
  std::vector<uint16_t>& rows_;
  size_t size_ = 0;
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

}  // namespace kvcompress::coding

#endif  // KVCOMPRESS_ENTROPY_SYMBOL_WRITER_H_
