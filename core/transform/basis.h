// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The orthogonal matrix of a group of heads, made from the integer Householder
// reflectors that a payload carries. Integers only: every machine has the same
// matrix. Specified in core/FORMAT.md, "klt".

#ifndef KVCOMPRESS_TRANSFORM_BASIS_H_
#define KVCOMPRESS_TRANSFORM_BASIS_H_

#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

#include "absl/types/span.h"

namespace kvcompress::coding {

inline constexpr int32_t kMaxReflector = 32767;
inline constexpr int kMatrixBits = 14;  // after the point

// Memory that begins with a line of a cache: kernels go over whole ones.
template <typename T>
struct LineAllocator {
  using value_type = T;
  static constexpr std::align_val_t kLine{64};

  LineAllocator() = default;
  template <typename U>
  explicit LineAllocator(const LineAllocator<U>&) {}
  T* allocate(size_t count) {
    return static_cast<T*>(::operator new(count * sizeof(T), kLine));
  }
  void deallocate(T* memory, size_t) { ::operator delete(memory, kLine); }
  bool operator==(const LineAllocator&) const = default;
};
using Lines = std::vector<int16_t, LineAllocator<int16_t>>;

// Row c has the c-th basis vector, kMatrixBits after the point.
class Matrix {
 public:
  explicit Matrix(size_t size) : size_(size), pairs_(PaddedSize() * size) {}

  size_t size() const { return size_; }
  // Rows, and a row of zeros where their number is odd.
  size_t PaddedSize() const { return size_ + size_ % 2; }
  int16_t at(size_t row, size_t column) const {
    return pairs_[Position(row, column)];
  }
  int16_t& at(size_t row, size_t column) {
    return pairs_[Position(row, column)];
  }

  // With rows in pairs, as a product takes a right matrix; from the pair that
  // has `row` on.
  int16_t* pairs_from(size_t row) { return &pairs_[row / 2 * 2 * size_]; }
  const int16_t* pairs() const { return pairs_.data(); }

  Matrix Transposed() const;

 private:
  size_t Position(size_t row, size_t column) const {
    return (row / 2 * size_ + column) * 2 + row % 2;
  }

  size_t size_;
  Lines pairs_;
};

// Reflector j of `size` dimensions is that of `size` - j integers: its
// components from j on. Kept one after the other.
class Reflectors {
 public:
  explicit Reflectors(size_t size) : size_(size) {}

  size_t size() const { return size_; }
  size_t count() const { return count_; }
  // Integers of the next reflector to be appended.
  size_t NextLength() const { return size_ - count_; }
  // REQUIRES: NextLength() integers, none beyond kMaxReflector.
  void Append(absl::Span<const int32_t> integers);
  absl::Span<const int32_t> Get(size_t index) const;

 private:
  size_t size_;
  size_t count_ = 0;
  std::vector<int32_t> integers_;
};

// The unit vector of a reflector's integers, 15 bits after the point, into
// `unit` of as many. False when all integers are zero: it reflects nothing.
bool UnitVector(absl::Span<const int32_t> integers, int16_t* unit);

Matrix MakeMatrix(const Reflectors& reflectors);

}  // namespace kvcompress::coding

#endif  // KVCOMPRESS_TRANSFORM_BASIS_H_
