// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/klt/basis.h"

#include <algorithm>
#include <cstdlib>

#include "kernels/kernels.h"

namespace kvcompress::klt {
namespace {

// The largest integer whose square is at most `value`.
uint64_t SquareRoot(uint64_t value) {
  uint64_t root = 0;
  uint64_t bit = uint64_t{1} << 62;
  while (bit > value) bit >>= 2;
  for (; bit != 0; bit >>= 2) {
    if (value >= root + bit) {
      value -= root + bit;
      root = (root >> 1) + bit;
    } else {
      root >>= 1;
    }
  }
  return root;
}

}  // namespace

void Reflectors::Append(absl::Span<const int32_t> integers) {
  integers_.insert(integers_.end(), integers.begin(), integers.end());
  ++count_;
}

absl::Span<const int32_t> Reflectors::Get(size_t index) const {
  const size_t begin = index * size_ - index * (index - 1) / 2;
  return absl::MakeConstSpan(integers_).subspan(begin, size_ - index);
}

bool UnitVector(absl::Span<const int32_t> integers, int16_t* unit) {
  uint64_t squares = 0;
  for (const int64_t k : integers) squares += static_cast<uint64_t>(k * k);
  if (squares == 0) return false;
  const int64_t root = static_cast<int64_t>(SquareRoot(squares));
  const int64_t first =
      integers[0] >= 0 ? integers[0] + root : integers[0] - root;
  squares +=
      static_cast<uint64_t>(first * first - int64_t{integers[0]} * integers[0]);
  int exponent = 0;
  while (squares << (2 * exponent) < uint64_t{1} << 60) ++exponent;
  const uint64_t length = SquareRoot(squares << (2 * exponent));
  for (size_t i = 0; i < integers.size(); ++i) {
    const int64_t value = i == 0 ? first : integers[i];
    const uint64_t scaled =
        ((static_cast<uint64_t>(std::abs(value)) << (15 + exponent)) +
         length / 2) /
        length;
    const int16_t magnitude =
        static_cast<int16_t>(std::min<uint64_t>(scaled, 32767));
    unit[i] = value < 0 ? static_cast<int16_t>(-magnitude) : magnitude;
  }
  return true;
}

Matrix Matrix::Transposed() const {
  Matrix result(size_);
  for (size_t row = 0; row < size_; ++row) {
    for (size_t column = 0; column < size_; ++column) {
      result.at(column, row) = at(row, column);
    }
  }
  return result;
}

Matrix MakeMatrix(const Reflectors& reflectors) {
  const size_t n = reflectors.size();
  Matrix matrix(n);
  for (size_t i = 0; i < n; ++i) matrix.at(i, i) = 1 << kMatrixBits;
  std::vector<int16_t> unit(matrix.PaddedSize());
  for (size_t j = 0; j < reflectors.count(); ++j) {
    std::fill(unit.begin(), unit.end(), int16_t{0});
    if (!UnitVector(reflectors.Get(j), &unit[j])) continue;
    const size_t first = j / 2 * 2;
    kernels::Active().reflect(&unit[first], matrix.PaddedSize() - first, n,
                              matrix.pairs_from(first));
  }
  return matrix;
}

}  // namespace kvcompress::klt
