// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/ecsq/rans.h"

#include <algorithm>
#include <cstring>

namespace kvcompress::ecsq {

RansStream RansEncode(absl::Span<const Coded> symbols, size_t lanes) {
  const Tables& tables = GetTables();
  RansStream stream;
  stream.states.assign(lanes, kLowest);
  // Words are written from the back of room for the most there can be. Each is
  // written in any case and kept where it is due: no branch.
  stream.words.resize(symbols.size() + 1);
  uint16_t* const end = stream.words.data() + stream.words.size();
  uint16_t* words = end;
  for (auto coded = symbols.rbegin(); coded != symbols.rend(); ++coded) {
    uint32_t state = stream.states[coded->lane];
    const auto [frequency, first] =
        tables.intervals[coded->table][coded->symbol + 128];
    words[-1] = static_cast<uint16_t>(state);
    const bool due = state >= uint32_t{frequency} << (31 - kSlotBits);
    words -= due;
    state >>= due ? 16 : 0;
    stream.states[coded->lane] =
        (state / frequency << kSlotBits) + state % frequency + first;
  }
  stream.words.erase(stream.words.begin(), stream.words.end() - (end - words));
  return stream;
}

RansDecoder::RansDecoder(absl::Span<const uint8_t> states,
                         absl::Span<const uint8_t> words)
    : tables_(GetTables()),
      lanes_(states.size() / sizeof(uint32_t)),
      next_(words.data()),
      end_(words.data() + words.size()) {
  std::memcpy(states_, states.data(), lanes_ * sizeof(uint32_t));
  for (size_t lane = 0; lane < lanes_; ++lane) {
    if (states_[lane] < kLowest || states_[lane] >> 31 != 0) valid_ = false;
  }
}

bool RansDecoder::ReadRow(const uint8_t* table, absl::Span<int8_t> symbols) {
  if (static_cast<size_t>(end_ - next_) >= kMaxLanes * sizeof(uint16_t)) {
    // There are words for the most that a row can take: refill without a
    // branch, by all ones where a word is due.
    const uint8_t* next = next_;
    for (size_t lane = 0; lane < symbols.size(); ++lane) {
      uint32_t state = states_[lane];
      const DecodeSlot& slot = tables_.slots[table[lane]][state & (kSlots - 1)];
      symbols[lane] = slot.symbol;
      state = slot.frequency * (state >> kSlotBits) + slot.offset;
      uint16_t word;
      std::memcpy(&word, next, sizeof(word));
      const uint32_t due = state < kLowest ? ~0u : 0;
      states_[lane] = state << (due & 16) | (word & due);
      next += due & sizeof(word);
    }
    next_ = next;
    return true;
  }
  for (size_t lane = 0; lane < symbols.size(); ++lane) {
    uint32_t state = states_[lane];
    const DecodeSlot& slot = tables_.slots[table[lane]][state & (kSlots - 1)];
    symbols[lane] = slot.symbol;
    state = slot.frequency * (state >> kSlotBits) + slot.offset;
    if (state < kLowest) {
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
         std::all_of(states_, states_ + lanes_,
                     [](uint32_t state) { return state == kLowest; });
}

}  // namespace kvcompress::ecsq
