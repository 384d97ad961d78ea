// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "entropy/rans.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "kernels/kernels.h"

namespace kvcompress::coding {

using kernels::kRansLowest;

RansStream RansEncode(absl::Span<const uint16_t> rows, size_t lanes,
                      std::vector<uint16_t>* room) {
  uint32_t states[kMaxLanes];
  std::fill(std::begin(states), std::end(states), kRansLowest);
  // Words are written from the back of space for the most there can be.
  room->resize(std::max(room->size(), kMaxLanes + rows.size()));
  uint16_t* const end = room->data() + room->size();
  const uint16_t* const first = kernels::Active().rans.encode(
      GetTables().intervals, rows.data(), rows.size() / kMaxLanes, states, end);
  return {
      .states = std::vector<uint32_t>(states, states + lanes),
      .words = absl::MakeConstSpan(first, static_cast<size_t>(end - first))};
}

RansDecoder::RansDecoder(absl::Span<const uint8_t> states,
                         absl::Span<const uint8_t> words)
    : tables_(GetTables()),
      lanes_(states.size() / sizeof(uint32_t)),
      next_(words.data()),
      end_(words.data() + words.size()) {
  std::fill(std::begin(states_), std::end(states_), kRansLowest);
  std::memcpy(states_, states.data(), lanes_ * sizeof(uint32_t));
  for (const uint32_t state : states_) {
    if (state < kRansLowest || state >> 31 != 0) valid_ = false;
  }
}

bool RansDecoder::ReadRows(absl::Span<const uint8_t* const> tables,
                           absl::Span<int8_t> symbols) {
  size_t row = kernels::Active().rans.decode(tables_.slots[0], tables.data(),
                                             tables.size(), states_, &next_,
                                             end_, symbols.data());
  for (; row < tables.size(); ++row) {
    if (!ReadLastRow(tables[row], &symbols[row * kMaxLanes])) return false;
  }
  return true;
}

// With a check for each word.
bool RansDecoder::ReadLastRow(const uint8_t* tables, int8_t* symbols) {
  for (size_t lane = 0; lane < kMaxLanes; ++lane) {
    uint32_t state = states_[lane];
    const uint32_t slot = tables_.slots[tables[lane]][state % kSlots];
    symbols[lane] = static_cast<int8_t>(slot >> 24);
    state = (slot >> 12 & 0xfff) * (state >> kSlotBits) + (slot & 0xfff);
    if (state < kRansLowest) {
      if (next_ == end_) return false;
      uint16_t word;
      std::memcpy(&word, next_, sizeof(word));
      next_ += sizeof(word);
      state = state << 16 | word;
    }
    states_[lane] = state;
  }
  return true;
}

bool RansDecoder::AtEnd() const {
  return next_ == end_ &&
         std::all_of(std::begin(states_), std::end(states_),
                     [](uint32_t state) { return state == kRansLowest; });
}

}  // namespace kvcompress::coding
