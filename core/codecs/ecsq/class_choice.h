// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Chooses the table class of a channel by what its quanta would cost.

#ifndef KVCOMPRESS_CODECS_ECSQ_CLASS_CHOICE_H_
#define KVCOMPRESS_CODECS_ECSQ_CLASS_CHOICE_H_

#include <cstdint>
#include <cstdlib>
#include <utility>
#include <vector>

namespace kvcompress::ecsq {

// How often a channel has each small quantum, and its others with the shifts of
// their tokens.
struct QuantaCounts {
  static constexpr int kCounted = 64;

  void Add(int32_t quantum, int shift) {
    if (shift == 0 && std::abs(quantum) <= kCounted) {
      ++counts[quantum + kCounted];
    } else {
      others.emplace_back(quantum, shift);
    }
  }

  uint32_t counts[2 * kCounted + 1] = {};
  std::vector<std::pair<int32_t, int>> others;
};

// The class near `klass` that codes a channel in fewest bits.
int BestClass(const QuantaCounts& quanta, int klass);

}  // namespace kvcompress::ecsq

#endif  // KVCOMPRESS_CODECS_ECSQ_CLASS_CHOICE_H_
