// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Allocations that fail, of any thread of a program. In programs that link
// failing_memory.cc, which replaces operator new.

#ifndef KVCOMPRESS_TESTS_SEARCH_FAILING_MEMORY_H_
#define KVCOMPRESS_TESTS_SEARCH_FAILING_MEMORY_H_

#include <cstdint>

namespace kvcompress::search {

// The allocation of that number from now on, counted from 1, throws
// std::bad_alloc, once. One at a time.
class FailingAllocation {
 public:
  explicit FailingAllocation(uint64_t number);
  ~FailingAllocation();
  FailingAllocation(const FailingAllocation&) = delete;
  FailingAllocation& operator=(const FailingAllocation&) = delete;
};

}  // namespace kvcompress::search

#endif  // KVCOMPRESS_TESTS_SEARCH_FAILING_MEMORY_H_
