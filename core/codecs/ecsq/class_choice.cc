// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/ecsq/class_choice.h"

#include <algorithm>

#include "codecs/ecsq/tables.h"

namespace kvcompress::ecsq {

int BestClass(const QuantaCounts& quanta, int klass) {
  constexpr int kNearby = 3;
  constexpr int kCounted = QuantaCounts::kCounted;
  const Tables& tables = GetTables();
  const auto bits = [&tables](int32_t quantum, int split_class) {
    const SplitClass split(split_class);
    return 256u * static_cast<uint32_t>(split.low_bits) +
           tables.Cost(split.table, quantum >> split.low_bits);
  };
  int best = klass;
  uint64_t best_cost = ~uint64_t{0};
  const int last = std::min(klass + 1, kClasses - 1);
  for (int k = std::max(0, klass - kNearby); k <= last; ++k) {
    uint64_t cost = 0;
    for (int32_t quantum = -kCounted; quantum <= kCounted; ++quantum) {
      const uint64_t count = quanta.counts[quantum + kCounted];
      if (count != 0) cost += count * bits(quantum, k);
    }
    for (const auto& [quantum, shift] : quanta.others) {
      cost += bits(quantum, k + 4 * shift);
    }
    if (cost < best_cost) {
      best_cost = cost;
      best = k;
    }
  }
  return best;
}

}  // namespace kvcompress::ecsq
