// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The inner loops of the entropy coder of ecsq and klt: 32 rANS states
// ("lanes") side by side, 16-bit renormalisation, frequencies that sum to 2^11.
// Specified in core/FORMAT.md, "ecsq". A row is one symbol in each lane; a
// symbol whose frequency is 2^11 leaves its lane as it is, and fills rows.

#ifndef KVCOMPRESS_KERNELS_RANS_H_
#define KVCOMPRESS_KERNELS_RANS_H_

#include <cstddef>
#include <cstdint>

namespace kvcompress::kernels {

inline constexpr size_t kRansLanes = 32;
inline constexpr int kRansSlotBits = 11;
inline constexpr uint32_t kRansSlots = 1u << kRansSlotBits;
// States lie in [kRansLowest, kRansLowest << 16).
inline constexpr uint32_t kRansLowest = 1u << 15;

// What an encoder needs of a symbol. `inverse` only guesses a quotient that is
// then made exact: see RansInverse.
struct RansInterval {
  uint16_t first = 0;
  uint16_t frequency = 0;
  float inverse = 0;
};

// A little less than 1 / frequency: a state over the frequency, at most 2^20,
// is found by it, or one less.
constexpr float RansInverse(uint32_t frequency) {
  return 1.0f / static_cast<float>(frequency) * (1 - 0x1p-22f);
}

// What a decoder needs of a slot: symbol, frequency, and the slot's place among
// those of its symbol.
constexpr uint32_t RansSlot(int8_t symbol, uint32_t frequency,
                            uint32_t offset) {
  return static_cast<uint32_t>(static_cast<uint8_t>(symbol)) << 24 |
         frequency << 12 | offset;
}

// Codes rows of indices into `intervals`, from the last row to the first.
// Writes the words in the decoder's order, so that they end at `words`, and
// returns the first. In front of it are kRansLanes words that may be
// overwritten.
using RansEncodeRows = uint16_t* (*)(const RansInterval* intervals,
                                     const uint16_t* rows, size_t count,
                                     uint32_t* states, uint16_t* words);

// Decodes up to `count` rows, lane i of row r under the table of kRansSlots
// slots with the index tables[r][i], while words for the most that a row can
// take lie between `*words`, of any alignment, and `end`. Returns how many, and
// advances `*words`.
using RansDecodeRows = size_t (*)(const uint32_t* slots,
                                  const uint8_t* const* tables, size_t count,
                                  uint32_t* states, const uint8_t** words,
                                  const uint8_t* end, int8_t* rows);

struct RansKernels {
  RansEncodeRows encode;
  RansDecodeRows decode;
};

const RansKernels& PortableRans();

}  // namespace kvcompress::kernels

#endif  // KVCOMPRESS_KERNELS_RANS_H_
