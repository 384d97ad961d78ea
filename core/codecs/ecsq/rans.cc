// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/ecsq/rans.h"

#include <algorithm>
#include <cstring>

namespace kvcompress::ecsq {

RansStream RansEncode(absl::Span<const Coded> symbols, size_t lanes) {
  const Tables& tables = GetTables();
  RansStream stream;
  stream.states.assign(lanes, kLowest);
  for (auto coded = symbols.rbegin(); coded != symbols.rend(); ++coded) {
    uint32_t& state = stream.states[coded->lane];
    const auto [frequency, first] =
        tables.intervals[coded->table][coded->symbol + 128];
    if (state >= uint32_t{frequency} << (31 - kSlotBits)) {
      stream.words.push_back(static_cast<uint16_t>(state));
      state >>= 16;
    }
    state = (state / frequency << kSlotBits) + state % frequency + first;
  }
  std::reverse(stream.words.begin(), stream.words.end());
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
