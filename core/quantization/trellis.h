// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The trellis of klt: two quantizers of the same step, one with levels at even
// multiples of half a step, one at odd ones and zero. The state of a component,
// which the parities of its quanta move from token to token, says which of them
// a quantum belongs to; together the two are twice as fine as each. (Entropy-
// coded trellis quantization: T. Fischer and M. Wang, IEEE Transactions on
// Information Theory 38(2), 1992; joined quantizers as in Rec. ITU-T H.266.)
// Specified in core/FORMAT.md, "klt".

#ifndef KVCOMPRESS_QUANTIZATION_TRELLIS_H_
#define KVCOMPRESS_QUANTIZATION_TRELLIS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "entropy/tables.h"

namespace kvcompress::coding {

inline constexpr size_t kTrellisStates = 8;

// Whether a state's quantizer is the odd one.
inline bool IsOddState(uint8_t state) { return state & 1; }

// The state after a quantum; every component begins with 0.
inline uint8_t NextState(uint8_t state, int64_t quantum) {
  const int low = state & 1;
  const int middle = state >> 1 & 1;
  const int high = state >> 2;
  const int parity = static_cast<int>(quantum & 1);
  return static_cast<uint8_t>((low ^ middle) | (parity ^ high) << 1 | low << 2);
}

// What a quantum stands for, in half steps.
inline int32_t LevelOf(int64_t quantum, bool odd) {
  const int64_t level = 2 * quantum;
  if (!odd || quantum == 0) return static_cast<int32_t>(level);
  return static_cast<int32_t>(quantum > 0 ? level - 1 : level + 1);
}

// The reverse.
inline int32_t QuantumOf(int32_t level, bool odd) {
  if (odd && level != 0) level += level > 0 ? 1 : -1;
  return level / 2;
}

// The table of a quantum of class `split`: classes with low bits are too wide
// for the quantizers to differ.
inline size_t TableOf(const SplitClass& split, bool odd) {
  return static_cast<size_t>(split.table) +
         (odd && split.low_bits == 0 ? kTables : 0);
}

// One value to quantize.
struct TrellisInput {
  float exact = 0;  // in steps
  int klass = 0;
  float error_per_bit = 0;  // squared error, in squared steps, a bit is worth
};

// Finds the quanta of a component whose errors and bits cost least together.
// Not thread safe.
class TrellisEncoder {
 public:
  void Quantize(absl::Span<const TrellisInput> input, int32_t* quanta);

 private:
  // The best quantum of either parity of each quantizer, at [odd * 2 + parity].
  struct Choices {
    int32_t quanta[4];
  };
  // Finds them, and the cost of each.
  static void Choose(const TrellisInput& input, Choices* choices, float* costs);

  std::vector<Choices> choices_;
  // Bit s: whether the better branch into state s came from the higher of the
  // two states before it.
  std::vector<uint8_t> branches_;
};

}  // namespace kvcompress::coding

#endif  // KVCOMPRESS_QUANTIZATION_TRELLIS_H_
