// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "entropy/tables.h"

namespace kvcompress::coding {
namespace {

// 256 log2(value), rounded down; value is at least 1. Integers only, so that
// every machine makes the same choices.
uint32_t Log2Times256(uint32_t value) {
  uint32_t exponent = 0;
  while (value >> (exponent + 1) != 0) ++exponent;
  uint64_t mantissa = (uint64_t{value} << 31) >> exponent;  // [1, 2) * 2^31
  uint32_t result = exponent;
  for (int bit = 0; bit < 8; ++bit) {
    mantissa = mantissa * mantissa >> 31;
    const uint32_t carry = static_cast<uint32_t>(mantissa >> 32);
    mantissa >>= carry;
    result = result << 1 | carry;
  }
  return result;
}

Tables Make() {
  Tables tables = {};
  for (size_t i = 0; i < kAllTables; ++i) {
    const absl::Span<const uint16_t> half = HalfFrequencies(i);
    const int largest = static_cast<int>(half.size()) - 1;
    tables.largest[i] = largest;
    uint32_t first = 0;
    const auto add = [&](int symbol, uint32_t frequency) {
      tables.intervals[CodedSymbol(i, symbol)] = {
          .first = static_cast<uint16_t>(first),
          .frequency = static_cast<uint16_t>(frequency),
          .inverse = kernels::RansInverse(frequency)};
      tables.cost[i][symbol + 128] =
          static_cast<uint16_t>(kSlotBits * 256 - Log2Times256(frequency));
      for (uint32_t j = 0; j < frequency; ++j) {
        tables.slots[i][first + j] =
            kernels::RansSlot(static_cast<int8_t>(symbol), frequency, j);
      }
      first += frequency;
    };
    for (int symbol = -largest; symbol <= largest; ++symbol) {
      add(symbol, half[symbol < 0 ? -symbol : symbol]);
    }
    add(kEscape, kSlots - first);
  }
  tables.intervals[kNoSymbol] = {
      .first = 0, .frequency = kSlots, .inverse = kernels::RansInverse(kSlots)};
  for (uint32_t j = 0; j < kSlots; ++j) {
    tables.slots[kNoTable][j] = kernels::RansSlot(0, kSlots, j);
  }
  return tables;
}

}  // namespace

const Tables& GetTables() {
  static const Tables* const tables = new Tables(Make());
  return *tables;
}

int ClassOf(double variance) {
  // Table i stands for the variance 2^((i-15)/2); the threshold to the next
  // lies half-way between them in logarithm.
  constexpr double kFirstThreshold = 0x1.ae89f995ad3adp-8;  // 2^(-7.25)
  constexpr double kRatio = 0x1.6a09e667f3bcdp0;            // 2^0.5
  int klass = 0;
  for (double threshold = kFirstThreshold;
       klass < kClasses - 1 && variance >= threshold; threshold *= kRatio) {
    ++klass;
  }
  return klass;
}

}  // namespace kvcompress::coding
