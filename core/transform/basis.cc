// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "transform/basis.h"

#include <algorithm>

#include "kernels/joint.h"
#include "kernels/kernels.h"

namespace kvcompress::coding {
namespace {

// Columns that are reflected together.
constexpr size_t kPanel = 32;

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
  // Dividend and divisor are below 2^47 and 2^31 and exact. A quotient, below
  // 2^16, that is no integer is no nearer to the next one than 2^-31, and its
  // product with the inverse, an error of less than 2^-35 away: with 2^-33 more
  // that is rounded down as the quotient would be.
  const double factor = static_cast<double>(uint64_t{1} << (15 + exponent));
  const uint64_t rounded_half = length / 2;
  const double half = static_cast<double>(rounded_half);
  const kernels::UnitScale scale = {.factor = factor,
                                    .half = half,
                                    .inverse = 1 / static_cast<double>(length)};
  const auto scale_to_unit = kernels::Active().joint->scale_to_unit;
  const int32_t head = static_cast<int32_t>(first);
  scale_to_unit(integers.data(), integers.size(), scale, unit);
  scale_to_unit(&head, 1, scale, unit);
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
  const size_t rows = matrix.PaddedSize();
  // With a zero in front of those that begin within a pair of rows.
  std::vector<int16_t> units(reflectors.count() * rows);
  std::vector<size_t> some;  // those that reflect
  for (size_t j = 0; j < reflectors.count(); ++j) {
    if (UnitVector(reflectors.Get(j), &units[j * rows + j])) some.push_back(j);
  }
  // Columns do not see each other: a few at a time stay in the nearest cache.
  Lines panel(rows * kPanel);
  for (size_t begin = 0; begin < n; begin += kPanel) {
    const size_t columns = std::min(kPanel, n - begin);
    std::fill(panel.begin(), panel.end(), int16_t{0});
    for (size_t i = 0; i < columns; ++i) {
      const size_t row = begin + i;
      panel[(row / 2 * columns + i) * 2 + row % 2] = 1 << kMatrixBits;
    }
    for (const size_t j : some) {
      const size_t first = j / 2 * 2;
      kernels::Active().reflect(&units[j * rows + first], rows - first, columns,
                                &panel[first * columns]);
    }
    for (size_t row = 0; row < rows; row += 2) {
      std::copy_n(&panel[row * columns], 2 * columns,
                  matrix.pairs_from(row) + 2 * begin);
    }
  }
  return matrix;
}

}  // namespace kvcompress::coding
