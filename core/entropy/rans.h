// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The entropy coder of ecsq and klt: up to 32 interleaved rANS states ("lanes")
// with 16-bit renormalisation (J. Duda, arXiv:1311.2540), under the tables of
// tables.h. Specified in core/FORMAT.md, "ecsq"; its loops are kernels.

#ifndef KVCOMPRESS_ENTROPY_RANS_H_
#define KVCOMPRESS_ENTROPY_RANS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "entropy/tables.h"
#include "kernels/rans.h"

namespace kvcompress::coding {

inline constexpr size_t kMaxLanes = kernels::kRansLanes;

struct RansStream {
  std::vector<uint32_t> states;      // one for each lane
  absl::Span<const uint16_t> words;  // in the order the decoder reads them
};

// Codes rows of kMaxLanes symbols (CodedSymbol), in the decoder's order, to
// words in `*room`, which grows as it must. REQUIRES: lanes from `lanes` on
// have kNoSymbol, and each table has its symbol.
RansStream RansEncode(absl::Span<const uint16_t> rows, size_t lanes,
                      std::vector<uint16_t>* room);

// Reads a stream that is not trusted. Not thread safe.
class RansDecoder {
 public:
  // Both little-endian, any alignment; `states` has 4 * lanes bytes and
  // `words` an even number. They must outlive the decoder.
  RansDecoder(absl::Span<const uint8_t> states,
              absl::Span<const uint8_t> words);

  // Whether every state was in its range.
  bool valid() const { return valid_; }

  // Reads rows of kMaxLanes symbols, each lane under `tables[row][lane]`;
  // kNoTable yields 0. False when the words have run out. REQUIRES: valid(),
  // tables up to kNoTable, which lanes beyond the stream's have;
  // `symbols.size()` is kMaxLanes for each row.
  bool ReadRows(absl::Span<const uint8_t* const> tables,
                absl::Span<int8_t> symbols);
  bool ReadRow(const uint8_t* tables, absl::Span<int8_t> symbols) {
    return ReadRows(absl::MakeConstSpan(&tables, 1), symbols);
  }

  // Whether the stream ended as an encoder began it, with nothing left over.
  bool AtEnd() const;

 private:
  bool ReadLastRow(const uint8_t* tables, int8_t* symbols);

  const Tables& tables_;
  size_t lanes_;
  uint32_t states_[kMaxLanes];
  const uint8_t* next_;
  const uint8_t* const end_;
  bool valid_ = true;
};

}  // namespace kvcompress::coding

#endif  // KVCOMPRESS_ENTROPY_RANS_H_
