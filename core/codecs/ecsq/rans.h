// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The entropy coder of ecsq: up to 32 interleaved rANS states ("lanes") with
// 16-bit renormalisation (J. Duda, arXiv:1311.2540), under the tables of
// tables.h. Specified in core/FORMAT.md, "ecsq".

#ifndef KVCOMPRESS_CODECS_ECSQ_RANS_H_
#define KVCOMPRESS_CODECS_ECSQ_RANS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "codecs/ecsq/tables.h"

namespace kvcompress::ecsq {

inline constexpr size_t kMaxLanes = 32;
// States lie in [kLowest, kLowest << 16); the encoder begins with kLowest.
inline constexpr uint32_t kLowest = 1u << 15;

// One symbol of the stream.
struct Coded {
  uint8_t lane;
  uint8_t table;
  int8_t symbol;
};

struct RansStream {
  std::vector<uint32_t> states;  // one for each lane
  std::vector<uint16_t> words;   // in the order the decoder reads them
};

// Codes symbols given in the decoder's order. REQUIRES: each lane is below
// `lanes`, and each table has its symbol.
RansStream RansEncode(absl::Span<const Coded> symbols, size_t lanes);

// Reads a stream that is not trusted. Not thread safe.
class RansDecoder {
 public:
  // Both little-endian, any alignment; `states` has 4 * lanes bytes and
  // `words` an even number. They must outlive the decoder.
  RansDecoder(absl::Span<const uint8_t> states,
              absl::Span<const uint8_t> words);

  // Whether every state was in its range.
  bool valid() const { return valid_; }

  // Reads one symbol in each of the first `symbols.size()` lanes under
  // `table[lane]`. False when the words have run out. REQUIRES: valid(), tables
  // below kTables.
  bool ReadRow(const uint8_t* table, absl::Span<int8_t> symbols);

  // Whether the stream ended as an encoder began it, with nothing left over.
  bool AtEnd() const;

 private:
  const Tables& tables_;
  size_t lanes_;
  uint32_t states_[kMaxLanes];
  const uint8_t* next_;
  const uint8_t* const end_;
  bool valid_ = true;
};

}  // namespace kvcompress::ecsq

#endif  // KVCOMPRESS_CODECS_ECSQ_RANS_H_
