// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Collects the symbols of a block in the decoder's order, with what travels
// beside them: escapes and low bits.

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
  // For about `size` symbols.
  explicit SymbolWriter(size_t size) : bits_(&low_bits_) {
    symbols_.reserve(size);
  }

  // Codes `value` in a lane: its low bits as they are, the rest under a table.
  void Put(size_t lane, size_t table, int32_t value, int low_bits);
  // Codes numbers in rows of `lanes` under one table.
  void PutRows(absl::Span<const int32_t> values, size_t table, size_t lanes);
  // Sends the low bits of a number that is coded elsewhere.
  void PutLowBits(int32_t value, int count) {
    bits_.Put(static_cast<uint32_t>(value), count);
  }
  void Finish() { bits_.Finish(); }

  const std::vector<Coded>& symbols() const { return symbols_; }
  const std::string& escapes() const { return escapes_; }
  const std::string& low_bits() const { return low_bits_; }

 private:
  const Tables& tables_ = GetTables();
  std::vector<Coded> symbols_;
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
