// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "failing_memory.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace kvcompress::search {
namespace {

// Allocations until the one that fails; 0 or less: none does.
std::atomic<int64_t> left = 0;

}  // namespace

FailingAllocation::FailingAllocation(uint64_t number) {
  left = static_cast<int64_t>(number);
}
FailingAllocation::~FailingAllocation() { left = 0; }

}  // namespace kvcompress::search

void* operator new(size_t size, const std::nothrow_t&) noexcept {
  using kvcompress::search::left;
  if (left > 0 && --left == 0) return nullptr;
  return std::malloc(size > 0 ? size : 1);
}
void* operator new[](size_t size, const std::nothrow_t& tag) noexcept {
  return operator new(size, tag);
}
void* operator new(size_t size) {
  void* const memory = operator new(size, std::nothrow);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void* operator new[](size_t size) { return operator new(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
