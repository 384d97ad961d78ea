// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "entropy/coded_bytes.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "status/macros.h"

namespace kvcompress::coding {
namespace {

static_assert(std::endian::native == std::endian::little,
              "the format is little-endian and so is this code");

constexpr uint32_t kLowest = 1u << 16;  // of a state between two symbols
constexpr uint32_t kSlotMask = kFrequencyTotal - 1;
constexpr size_t kWordSize = sizeof(uint16_t);
constexpr size_t kStatesSize = kByteLanes * sizeof(uint32_t);

// What decoding needs to know of a slot, in one load.
struct Slot {
  uint32_t symbol : 8;
  uint32_t frequency_less_1 : 12;
  uint32_t offset : 12;  // of the slot within its symbol's
};
using SlotTable = std::array<Slot, kFrequencyTotal>;

void FillSlots(const Frequencies& frequencies, SlotTable* slots) {
  size_t slot = 0;
  for (uint32_t v = 0; v < 256; ++v) {
    const uint32_t f = frequencies[v];
    for (uint32_t i = 0; i < f; ++i) (*slots)[slot++] = {v, f - 1, i};
  }
}

// Takes one symbol off a state. At most one word is then due, when the state is
// below kLowest.
uint8_t Pop(const SlotTable& slots, uint32_t* state) {
  const Slot slot = slots[*state & kSlotMask];
  *state =
      (slot.frequency_less_1 + 1) * (*state >> kFrequencyBits) + slot.offset;
  return static_cast<uint8_t>(slot.symbol);
}

uint16_t LoadWord(const char* at) {
  uint16_t word;
  std::memcpy(&word, at, kWordSize);
  return word;
}

}  // namespace

void EncodeBytes(absl::string_view symbols, const ByteCounts& counts,
                 std::string* coded) {
  const Frequencies frequencies = NormalizeCounts(counts);
  AppendFrequencies(frequencies, coded);
  std::array<uint32_t, 256> first;
  uint32_t sum = 0;
  for (size_t v = 0; v < 256; ++v) {
    first[v] = sum;
    sum += frequencies[v];
  }

  // Words are written from the back of space for the most there can be.
  const size_t begin = coded->size();
  coded->resize(begin + kStatesSize + kWordSize * (symbols.size() + 1));
  char* const end = coded->data() + coded->size();
  char* words = end;
  std::array<uint32_t, kByteLanes> states;
  states.fill(kLowest);
  for (size_t i = symbols.size(); i-- > 0;) {
    const uint8_t v = static_cast<uint8_t>(symbols[i]);
    const uint32_t f = frequencies[v];
    uint32_t x = states[i % kByteLanes];
    // The word is written in any case and kept where it is due: no branch.
    const uint16_t word = static_cast<uint16_t>(x);
    std::memcpy(words - kWordSize, &word, kWordSize);
    const uint32_t due = (x >> (32 - kFrequencyBits)) >= f ? ~0u : 0;
    words -= due & kWordSize;
    x >>= due & 16;
    states[i % kByteLanes] = ((x / f) << kFrequencyBits) + x % f + first[v];
  }
  char* out = coded->data() + begin;
  std::memcpy(out, states.data(), kStatesSize);
  std::memmove(out + kStatesSize, words, end - words);
  coded->resize(begin + kStatesSize + (end - words));
}

absl::Status DecodeBytes(absl::string_view coded, size_t count,
                         uint8_t* symbols) {
  Frequencies frequencies;
  KVC_RETURN_IF_ERROR(ConsumeFrequencies(&coded, &frequencies));
  if (coded.size() < kStatesSize) {
    return absl::DataLossError("the coded bytes end within the states");
  }
  std::array<uint32_t, kByteLanes> states;
  std::memcpy(states.data(), coded.data(), kStatesSize);
  for (uint32_t x : states) {
    if (x < kLowest) {
      return absl::DataLossError("a state of coded bytes is out of range");
    }
  }
  SlotTable slots;
  FillSlots(frequencies, &slots);

  const char* words = coded.data() + kStatesSize;
  const char* const end = coded.data() + coded.size();
  size_t i = 0;
  // Whole rows, while there are words for the most that a row can take.
  while (count - i >= kByteLanes &&
         static_cast<size_t>(end - words) >= kByteLanes * kWordSize) {
    for (size_t lane = 0; lane < kByteLanes; ++lane) {
      uint32_t x = states[lane];
      symbols[i + lane] = Pop(slots, &x);
      // All ones where a word is due: refilling without a branch.
      const uint32_t due = x < kLowest ? ~0u : 0;
      states[lane] = x << (due & 16) | (LoadWord(words) & due);
      words += due & kWordSize;
    }
    i += kByteLanes;
  }
  for (; i < count; ++i) {
    uint32_t& x = states[i % kByteLanes];
    symbols[i] = Pop(slots, &x);
    if (x >= kLowest) continue;
    if (static_cast<size_t>(end - words) < kWordSize) {
      return absl::DataLossError(
          absl::StrCat("the coded bytes end before symbol ", i + 1));
    }
    x = x << 16 | LoadWord(words);
    words += kWordSize;
  }
  if (words != end || !std::all_of(states.begin(), states.end(),
                                   [](uint32_t x) { return x == kLowest; })) {
    return absl::DataLossError("the coded bytes go on after the last symbol");
  }
  return absl::OkStatus();
}

}  // namespace kvcompress::coding
