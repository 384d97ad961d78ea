// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/klt/principal.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/joint.h"
#include "kernels/kernels.h"

namespace kvcompress::klt {
namespace {

// Eigenvalues that are found side by side: enough for a compiler to keep the
// loops over them, and take vectors.
constexpr size_t kLanes = 32;
// Halvings of the interval that has all eigenvalues: nearly to the last place
// of a binary32.
constexpr int kHalvings = 22;
// Eigenvalues below this part of the largest are left out.
constexpr float kLeastValue = 1e-6f;
// Vectors whose values are closer than this part of the largest are made
// orthogonal, and must then be this long.
constexpr float kClose = 3e-5f;
constexpr float kLeastLength = 0.1f;
constexpr int kRestarts = 4;
// What is left of a column below this, beside a largest entry of 1, is zero.
constexpr float kLeastSquares = 1e-16f;

using Lanes = float[kLanes];

size_t RoundUp(size_t size, size_t unit) {
  return (size + unit - 1) / unit * unit;
}

// Eight sums that do not wait for each other.
float Product(const float* a, const float* b, size_t count) {
  float sums[8] = {};
  size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    for (size_t l = 0; l < 8; ++l) sums[l] += a[i + l] * b[i + l];
  }
  for (; i < count; ++i) sums[0] += a[i] * b[i];
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) +
         ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

// A symmetric matrix as H T H', T tridiagonal and H a product of reflections.
class Tridiagonal {
 public:
  Tridiagonal(absl::Span<const float> matrix, size_t size)
      : size_(size),
        stride_(RoundUp(size, kernels::kSymmetricColumns)),
        rows_(size * stride_),
        factors_(size),
        diagonal_(size),
        beside_(size) {
    for (size_t i = 0; i < size; ++i) {
      std::copy_n(&matrix[i * size], size, &rows_[i * stride_]);
    }
    Reduce();
  }

  absl::Span<const float> diagonal() const { return diagonal_; }
  // Entry i is at (i, i + 1); the last is 0.
  absl::Span<const float> beside() const { return beside_; }

  // Eigenvectors of T to those of the matrix: columns of [size, columns].
  void TurnBack(size_t columns, float* vectors) const {
    for (size_t k = size_ - 1; k-- > 0;) {
      if (factors_[k] == 0) continue;
      kernels::Active().joint->reflect_rows(
          &rows_[k * stride_ + k + 1], factors_[k],
          {.rows = size_ - k - 1, .columns = columns, .stride = columns},
          vectors + (k + 1) * columns);
    }
  }

 private:
  void Reduce() {
    // The reflection of the step before, and what it leaves to be subtracted.
    std::vector<float> v(stride_);
    std::vector<float> w(stride_);
    std::vector<float> next_v(stride_);
    std::vector<float> product(stride_);
    for (size_t k = 0; k < size_; ++k) {
      float* const row = &rows_[k * stride_];
      for (size_t i = k; i < size_; ++i) row[i] -= v[k] * w[i] + w[k] * v[i];
      diagonal_[k] = row[k];
      if (k + 1 == size_) break;
      std::fill(next_v.begin(), next_v.end(), 0.0f);
      const size_t left = size_ - k - 1;
      const float first = row[k + 1];
      const float squares = Product(row + k + 2, row + k + 2, left - 1);
      beside_[k] = first;
      if (squares > kLeastSquares) {
        const float length = std::sqrt(squares + first * first);
        beside_[k] = first > 0 ? -length : length;
        row[k + 1] = first - beside_[k];
        factors_[k] = 1 / (length * (length + std::abs(first)));
        std::copy_n(row + k + 1, left, &next_v[k + 1]);
      }
      const size_t begin =
          (k + 1) / kernels::kSymmetricColumns * kernels::kSymmetricColumns;
      std::fill(product.begin(), product.end(), 0.0f);
      kernels::Active().joint->update_symmetric(
          {.v = &v[begin],
           .w = &w[begin],
           .v_of_row = &v[k + 1],
           .w_of_row = &w[k + 1],
           .u_of_row = &next_v[k + 1]},
          {.rows = left, .columns = stride_ - begin, .stride = stride_},
          &rows_[(k + 1) * stride_ + begin], &product[begin]);
      const float factor = factors_[k];
      const float half =
          factor / 2 *
          (factor * Product(&product[k + 1], &next_v[k + 1], left));
      v.swap(next_v);
      std::fill(w.begin(), w.end(), 0.0f);
      for (size_t i = k + 1; i < size_; ++i) {
        w[i] = factor * product[i] - half * v[i];
      }
    }
  }

  const size_t size_;
  const size_t stride_;
  // Row k has the vector of reflection k after its diagonal.
  std::vector<float> rows_;
  std::vector<float> factors_;  // 2 over the vector's square; 0 for none
  std::vector<float> diagonal_;
  std::vector<float> beside_;
};

// Eigenvalues number `first` and on, from the largest, by bisection of
// [low, high], which has all of them.
void FindValues(const Tridiagonal& t, size_t first, float low, float high,
                Lanes values) {
  const size_t n = t.diagonal().size();
  Lanes lows;
  Lanes highs;
  int wanted[kLanes];  // how many are below
  for (size_t l = 0; l < kLanes; ++l) {
    lows[l] = low;
    highs[l] = high;
    wanted[l] = static_cast<int>(n) - 1 - static_cast<int>(first + l);
  }
  const float tiny = std::max(high, -low) * 1e-12f;
  for (int step = 0; step < kHalvings; ++step) {
    Lanes pivots;
    int below[kLanes] = {};
    for (size_t l = 0; l < kLanes; ++l) {
      values[l] = 0.5f * (lows[l] + highs[l]);
      pivots[l] = 1;
    }
    float square = 0;
    for (size_t i = 0; i < n; ++i) {
      const float diagonal = t.diagonal()[i];
      for (size_t l = 0; l < kLanes; ++l) {
        const float pivot = (diagonal - values[l]) - square / pivots[l];
        pivots[l] = std::abs(pivot) < tiny ? -tiny : pivot;
        below[l] += pivots[l] < 0 ? 1 : 0;
      }
      square = t.beside()[i] * t.beside()[i];
    }
    for (size_t l = 0; l < kLanes; ++l) {
      const bool is_below = below[l] > wanted[l];
      highs[l] = is_below ? values[l] : highs[l];
      lows[l] = is_below ? lows[l] : values[l];
    }
  }
  for (size_t l = 0; l < kLanes; ++l) values[l] = 0.5f * (lows[l] + highs[l]);
}

// T less each of kLanes values, as L U with the larger pivots.
class Factors {
 public:
  Factors(const Tridiagonal& t, const Lanes& values, float tiny)
      : rows_(t.diagonal().size()) {
    const size_t n = rows_.size();
    Lanes first;
    Lanes second;
    for (size_t l = 0; l < kLanes; ++l) {
      first[l] = t.diagonal()[0] - values[l];
      second[l] = t.beside()[0];
    }
    for (size_t i = 0; i < n; ++i) {
      Row& row = rows_[i];
      const float below = i + 1 < n ? t.beside()[i] : 0;
      const float next = i + 1 < n ? t.diagonal()[i + 1] : 0;
      const float after = i + 1 < n ? t.beside()[i + 1] : 0;
      for (size_t l = 0; l < kLanes; ++l) {
        const float diagonal = next - values[l];
        const bool swaps = std::abs(first[l]) < std::abs(below);
        const float pivot = swaps ? below : first[l];
        const float other = swaps ? first[l] : below;
        const float right = swaps ? diagonal : second[l];
        const float far = swaps ? after : 0;
        const float left_right = swaps ? second[l] : diagonal;
        const float left_far = swaps ? 0 : after;
        const float sure = std::abs(pivot) < tiny ? tiny : pivot;
        const float inverse = 1 / sure;
        row.swaps[l] = swaps ? 1.0f : 0.0f;
        row.factor[l] = other * inverse;
        row.inverse[l] = inverse;
        row.second[l] = right;
        row.third[l] = far;
        first[l] = left_right - row.factor[l] * right;
        second[l] = left_far - row.factor[l] * far;
      }
    }
  }

  // Solves with U alone, then, for numbers that went through L, with both.
  void SolveUpper(float* x, size_t stride) const {
    Lanes after = {};
    Lanes far = {};
    for (size_t i = rows_.size(); i-- > 0;) {
      const Row& row = rows_[i];
      float* const at = x + i * stride;
      for (size_t l = 0; l < kLanes; ++l) {
        const float value =
            ((at[l] - row.second[l] * after[l]) - row.third[l] * far[l]) *
            row.inverse[l];
        far[l] = after[l];
        after[l] = value;
        at[l] = value;
      }
    }
  }
  void SolveLower(float* x, size_t stride) const {
    for (size_t i = 0; i + 1 < rows_.size(); ++i) {
      const Row& row = rows_[i];
      float* const at = x + i * stride;
      float* const below = at + stride;
      for (size_t l = 0; l < kLanes; ++l) {
        const bool swaps = row.swaps[l] != 0;
        const float pivot = swaps ? below[l] : at[l];
        const float other = swaps ? at[l] : below[l];
        at[l] = pivot;
        below[l] = other - row.factor[l] * pivot;
      }
    }
  }

 private:
  struct Row {
    Lanes swaps;  // 1 where the row changed places with the next
    Lanes factor;
    Lanes inverse;  // of the diagonal of U
    Lanes second;   // of U, right of the diagonal
    Lanes third;
  };
  std::vector<Row> rows_;
};

// Makes each of kLanes columns of [rows, stride] one of length 1.
void Normalize(size_t rows, size_t stride, float* x) {
  // A vector that is nearly an eigenvector may be very long.
  Lanes largest = {};
  for (size_t i = 0; i < rows; ++i) {
    for (size_t l = 0; l < kLanes; ++l) {
      largest[l] = std::max(largest[l], std::abs(x[i * stride + l]));
    }
  }
  Lanes squares = {};
  for (size_t l = 0; l < kLanes; ++l) {
    largest[l] = 1 / std::max(largest[l], 1e-30f);
  }
  for (size_t i = 0; i < rows; ++i) {
    for (size_t l = 0; l < kLanes; ++l) {
      const float value = x[i * stride + l] * largest[l];
      squares[l] += value * value;
    }
  }
  for (size_t l = 0; l < kLanes; ++l) {
    largest[l] /= std::sqrt(std::max(squares[l], 1e-30f));
  }
  for (size_t i = 0; i < rows; ++i) {
    for (size_t l = 0; l < kLanes; ++l) x[i * stride + l] *= largest[l];
  }
}

// One inverse iteration of a single vector.
void Iterate(const Tridiagonal& t, float value, float tiny, float* vector) {
  const size_t size = t.diagonal().size();
  Lanes values;
  std::fill_n(values, kLanes, value);
  const Factors factors(t, values, tiny);
  std::vector<float> x(size * kLanes);
  for (size_t i = 0; i < size; ++i) x[i * kLanes] = vector[i];
  factors.SolveLower(x.data(), kLanes);
  factors.SolveUpper(x.data(), kLanes);
  Normalize(size, kLanes, x.data());
  for (size_t i = 0; i < size; ++i) vector[i] = x[i * kLanes];
}

}  // namespace

std::optional<PrincipalAxes> FindPrincipalAxes(absl::Span<const float> matrix,
                                               size_t size, size_t most) {
  const Tridiagonal t(matrix, size);
  // Circles around the diagonal that have all eigenvalues.
  float low = 0;
  float high = 0;
  for (size_t i = 0; i < size; ++i) {
    const float radius =
        std::abs(t.beside()[i]) + (i == 0 ? 0 : std::abs(t.beside()[i - 1]));
    low = std::min(low, t.diagonal()[i] - radius);
    high = std::max(high, t.diagonal()[i] + radius);
  }
  const size_t wanted = std::min(most, size);
  const size_t columns = RoundUp(wanted, kLanes);
  std::vector<float> values(columns);
  std::vector<float> vectors(size * columns, 1.0f);
  const float tiny = high * std::numeric_limits<float>::epsilon();
  for (size_t first = 0; first < columns; first += kLanes) {
    Lanes found;
    FindValues(t, first, low, high, found);
    std::copy_n(found, kLanes, &values[first]);
    const Factors factors(t, found, tiny);
    float* const x = &vectors[first];
    factors.SolveUpper(x, columns);
    Normalize(size, columns, x);
    factors.SolveLower(x, columns);
    factors.SolveUpper(x, columns);
    Normalize(size, columns, x);
  }

  PrincipalAxes axes;
  while (axes.values.size() < wanted &&
         values[axes.values.size()] > kLeastValue * values[0]) {
    axes.values.push_back(values[axes.values.size()]);
  }
  const size_t count = axes.values.size();
  axes.vectors.resize(count * size);
  for (size_t j = 0; j < count; ++j) {
    float* const vector = &axes.vectors[j * size];
    for (size_t i = 0; i < size; ++i) vector[i] = vectors[i * columns + j];
    const auto stand_apart = [&] {
      for (size_t k = j;
           k-- > 0 && values[k] - values[j] < kClose * values[0];) {
        const float* const before = &axes.vectors[k * size];
        const float product = Product(before, vector, size);
        for (size_t i = 0; i < size; ++i) vector[i] -= product * before[i];
      }
      const float length = std::sqrt(Product(vector, vector, size));
      if (!(length > 0)) return false;
      for (size_t i = 0; i < size; ++i) vector[i] /= length;
      return length > kLeastLength;
    };
    // What is left of one that did not stand apart is what it should begin
    // with.
    bool apart = stand_apart();
    for (int restart = 0; !apart && restart < kRestarts; ++restart) {
      Iterate(t, values[j], tiny, vector);
      apart = stand_apart();
    }
    if (!apart) return std::nullopt;
    for (size_t i = 0; i < size; ++i) vectors[i * columns + j] = vector[i];
  }
  t.TurnBack(columns, vectors.data());
  for (size_t j = 0; j < count; ++j) {
    for (size_t i = 0; i < size; ++i) {
      axes.vectors[j * size + i] = vectors[i * columns + j];
    }
  }
  return axes;
}

}  // namespace kvcompress::klt
