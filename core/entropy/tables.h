// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The fixed symbol tables of ecsq: table i fits a Gaussian whose standard
// deviation is 2^((i-15)/4) quantizer steps. Symbols are -largest .. largest
// and an escape; frequencies sum to kSlots. Specified in core/FORMAT.md,
// "ecsq"; table kTables + i, for the odd quantizer of a trellis, in "klt".

#ifndef KVCOMPRESS_ENTROPY_TABLES_H_
#define KVCOMPRESS_ENTROPY_TABLES_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "kernels/rans.h"

namespace kvcompress::coding {

inline constexpr size_t kTables = 28;
inline constexpr size_t kAllTables = 2 * kTables;
inline constexpr int kSlotBits = kernels::kRansSlotBits;
inline constexpr uint32_t kSlots = kernels::kRansSlots;
// Stands for a value that is in the list of escapes.
inline constexpr int kEscape = -128;

// Frequencies of the symbols 0 .. largest of a table; -a has that of a. The
// escape has what is left.
absl::Span<const uint16_t> HalfFrequencies(size_t table);

// A table whose one symbol, 0, takes no bits and changes no state.
inline constexpr size_t kNoTable = kAllTables;

// A symbol under a table, as the encoder takes it.
constexpr uint16_t CodedSymbol(size_t table, int symbol) {
  return static_cast<uint16_t>(table << 8 | static_cast<size_t>(symbol + 128));
}
inline constexpr uint16_t kNoSymbol = CodedSymbol(kNoTable, 0);

struct Tables {
  int largest[kAllTables];
  uint32_t slots[kAllTables + 1][kSlots];  // kernels::RansSlot
  // By CodedSymbol; frequency 0 where the table lacks the symbol.
  kernels::RansInterval intervals[(kAllTables + 1) << 8];
  uint16_t cost[kAllTables][256];  // bits in 1/256; see Cost

  // Bits to code `value` under `table`, in 1/256; an escape with its 16 bits.
  uint32_t Cost(size_t table, int64_t value) const {
    const bool fits = value >= -largest[table] && value <= largest[table];
    return fits ? cost[table][value + 128] : cost[table][0] + 16 * 256;
  }
};

// Made once. Thread safe.
const Tables& GetTables();

// The table class nearest to a variance in squared steps, in 0 .. kClasses - 1.
// Class k means table k up to 27, and above 27 low bits sent as they are: see
// SplitClass.
inline constexpr int kClasses = 72;
int ClassOf(double variance);

struct SplitClass {
  // `klass` is a channel's class plus 4 for each halving of the step.
  explicit SplitClass(int klass)
      : low_bits(klass < static_cast<int>(kTables) ? 0 : (klass - 24) / 4),
        table(klass - 4 * low_bits) {}
  int low_bits;
  int table;
};

}  // namespace kvcompress::coding

#endif  // KVCOMPRESS_ENTROPY_TABLES_H_
