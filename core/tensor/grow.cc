// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "tensor/grow.h"

#include <sys/mman.h>

#include <cstdint>

namespace kvcompress {
namespace {

constexpr uintptr_t kLargePage = 2 << 20;
// Below, what is rounded to whole pages would be much of it.
constexpr size_t kLeast = 2 * kLargePage;

}  // namespace

void AskForLargePages([[maybe_unused]] const void* memory,
                      [[maybe_unused]] size_t size) {
#ifdef MADV_HUGEPAGE
  if (size < kLeast) return;
  // Only pages that lie in it, so that nothing else is affected. A system
  // without large pages refuses, which is no matter.
  const auto begin = (reinterpret_cast<uintptr_t>(memory) + kLargePage - 1) /
                     kLargePage * kLargePage;
  const auto end =
      (reinterpret_cast<uintptr_t>(memory) + size) / kLargePage * kLargePage;
  if (begin < end) {
    madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
  }
#endif
}

}  // namespace kvcompress
