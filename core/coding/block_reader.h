// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Reads what BlockWriter writes, from bytes that are not trusted: all but the
// quanta, which a transform reads from the same coder. Errors are DATA_LOSS and
// name the field. Specified in core/FORMAT.md, "ecsq" and "klt".

#ifndef KVCOMPRESS_CODING_BLOCK_READER_H_
#define KVCOMPRESS_CODING_BLOCK_READER_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "coding/block_content.h"
#include "coding/format.h"
#include "coding/geometry.h"
#include "entropy/bits.h"
#include "entropy/escapes.h"
#include "entropy/rans.h"
#include "entropy/tables.h"

namespace kvcompress::coding {

// Not thread safe. What it is made from must outlive it.
class BlockReader {
 public:
  BlockReader(const TensorHeader& header, const Geometry& geometry,
              const Block& block)
      : header_(header),
        block_(block),
        elements_(geometry.Elements(block)),
        channels_(geometry.Channels(block)),
        lanes_(geometry.Lanes(block)) {}

  // Cuts a block, whose header is followed by so many bytes of counts, into its
  // sections. REQUIRED before all else.
  absl::Status Open(absl::Span<const uint8_t> bytes, size_t counts);

  const BlockHeader& header() const { return sizes_; }
  absl::Span<const uint8_t> counts() const { return counts_; }
  absl::Span<const uint8_t> exceptions() const { return exceptions_; }
  RansDecoder& rans() { return *rans_; }
  Escapes& escapes() { return *escapes_; }
  BitReader& low_bits() { return *low_bits_; }

  // Classes, means and norms.
  absl::Status ReadSideData(BlockContent* content);

  // Reads `count` symbols in rows, number i under `class_of(i)`: its symbol,
  // and the low bits of that class. `take(int64_t)` is false for a value that
  // `what` cannot have.
  template <typename ClassOf, typename Take>
  absl::Status ReadSymbols(absl::string_view what, size_t count,
                           ClassOf class_of, Take take);

  // The value of a symbol: an escape's from the list, and with its low bits.
  // False where the list has none.
  bool Resolve(int32_t symbol, int low_count, int64_t* value) {
    if (symbol == kEscape && !escapes_->Next(&symbol)) return false;
    *value =
        int64_t{symbol} * (int64_t{1} << low_count) + low_bits_->Get(low_count);
    return true;
  }

  // Sinks, once all symbols are read: nothing may be left of any section.
  absl::Status Finish(BlockContent* content);

 private:
  absl::Status ReadSinks(BlockContent* content) const;

  const TensorHeader& header_;
  const Block& block_;
  const size_t elements_;
  const size_t channels_;
  const size_t lanes_;
  BlockHeader sizes_;
  absl::Span<const uint8_t> counts_;
  absl::Span<const uint8_t> sink_scales_;
  absl::Span<const uint8_t> sink_codes_;
  absl::Span<const uint8_t> exceptions_;
  std::optional<RansDecoder> rans_;
  std::optional<Escapes> escapes_;
  std::optional<BitReader> low_bits_;
};

template <typename ClassOf, typename Take>
absl::Status BlockReader::ReadSymbols(absl::string_view what, size_t count,
                                      ClassOf class_of, Take take) {
  constexpr size_t kRows = 32;  // at a time
  uint8_t tables[kRows][kMaxLanes];
  int low_counts[kRows][kMaxLanes];
  int8_t symbols[kRows][kMaxLanes];
  const uint8_t* row_tables[kRows];
  for (size_t first = 0; first < count;) {
    size_t rows = 0;
    size_t end = first;
    for (; rows < kRows && end < count; ++rows) {
      row_tables[rows] = tables[rows];
      std::fill_n(tables[rows], kMaxLanes, kNoTable);
      for (size_t lane = 0; lane < lanes_ && end < count; ++lane, ++end) {
        const SplitClass split(class_of(end));
        tables[rows][lane] = static_cast<uint8_t>(split.table);
        low_counts[rows][lane] = split.low_bits;
      }
    }
    if (!rans_->ReadRows(absl::MakeConstSpan(row_tables, rows),
                         absl::MakeSpan(symbols[0], rows * kMaxLanes))) {
      return absl::DataLossError(
          absl::StrCat("the words end within the ", what));
    }
    for (size_t row = 0; first < end; ++row) {
      for (size_t lane = 0; lane < lanes_ && first < end; ++lane, ++first) {
        int64_t value;
        if (!Resolve(symbols[row][lane], low_counts[row][lane], &value)) {
          return absl::DataLossError(
              absl::StrCat("the list of escapes has no valid one for number ",
                           first, " of the ", what));
        }
        if (!take(value)) {
          return absl::DataLossError(absl::StrCat(
              "number ", first, " of the ", what, " is beyond its limits"));
        }
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace kvcompress::coding

#endif  // KVCOMPRESS_CODING_BLOCK_READER_H_
