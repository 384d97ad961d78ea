// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include <cstring>

#include "kernels/rans.h"

namespace kvcompress::kernels {
namespace {

// Both ways write or read a word in any case and keep it where it is due: no
// branch.
uint16_t* EncodeRows(const RansInterval* intervals, const uint16_t* rows,
                     size_t count, uint32_t* states, uint16_t* words) {
  for (size_t i = count * kRansLanes; i-- > 0;) {
    uint32_t state = states[i % kRansLanes];
    const RansInterval& interval = intervals[rows[i]];
    const uint32_t frequency = interval.frequency;
    words[-1] = static_cast<uint16_t>(state);
    const bool due = state >> (31 - kRansSlotBits) >= frequency;
    words -= due;
    state >>= due ? 16 : 0;
    states[i % kRansLanes] = (state / frequency << kRansSlotBits) +
                             state % frequency + interval.first;
  }
  return words;
}

size_t DecodeRows(const uint32_t* slots, const uint8_t* const* tables,
                  size_t count, uint32_t* states, const uint8_t** words,
                  const uint8_t* end, int8_t* rows) {
  constexpr ptrdiff_t kMax = kRansLanes * sizeof(uint16_t);
  const uint8_t* next = *words;
  size_t row = 0;
  for (; row < count && end - next >= kMax; ++row, rows += kRansLanes) {
    for (size_t lane = 0; lane < kRansLanes; ++lane) {
      uint32_t state = states[lane];
      const uint32_t slot =
          slots[tables[row][lane] * kRansSlots + state % kRansSlots];
      rows[lane] = static_cast<int8_t>(slot >> 24);
      state = (slot >> 12 & 0xfff) * (state >> kRansSlotBits) + (slot & 0xfff);
      uint16_t word;
      std::memcpy(&word, next, sizeof(word));
      const uint32_t due = state < kRansLowest ? ~0u : 0;
      states[lane] = state << (due & 16) | (word & due);
      next += due & sizeof(word);
    }
  }
  *words = next;
  return row;
}

}  // namespace

const RansKernels& PortableRans() {
  static constexpr RansKernels kKernels = {.encode = EncodeRows,
                                           .decode = DecodeRows};
  return kKernels;
}

}  // namespace kvcompress::kernels
