// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "transform/principal_components.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "kernels/joint.h"
#include "kernels/kernels.h"
#include "kernels/lanes.h"
#include "transform/layout.h"

namespace kvcompress::coding {
namespace {

// Eigenvalues below this part of the largest are left out.
constexpr float kMinValue = 1e-6f;
// Vectors whose values are closer than this part of the largest are made
// orthogonal, and must then be this long.
constexpr float kClose = 3e-5f;
constexpr float kMinLength = 0.1f;
// From what is left of the vector, and then as many from other vectors.
constexpr uint32_t kRestarts = 4;
// What is left of a column below this, where the largest entry is 1, is zero.
constexpr float kMinSquares = 1e-16f;

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
class Reduction {
 public:
  Reduction(absl::Span<const float> matrix, size_t size)
      : size_(size),
        stride_(RoundUp(size, kernels::kSymmetricColumns)),
        rows_(size * stride_),
        factors_(size),
        diagonal_(size),
        off_diagonal_(size) {
    for (size_t i = 0; i < size; ++i) {
      std::copy_n(&matrix[i * size], size, &rows_[i * stride_]);
    }
    Reduce();
  }

  // T; valid as long as this is.
  kernels::Tridiagonal tridiagonal() const {
    return {.diagonal = diagonal_.data(),
            .off_diagonal = off_diagonal_.data(),
            .size = size_};
  }

  // Eigenvectors of T to those of the matrix: columns of [size, columns].
  void ReflectBack(size_t columns, float* vectors) const {
    for (size_t first = 0; first < columns;
         first += kernels::kReflectedColumns) {
      for (size_t k = size_ - 1; k-- > 0;) {
        if (factors_[k] == 0) continue;
        kernels::Active().joint->reflect_rows(
            &rows_[k * stride_ + k + 1], factors_[k],
            {.rows = size_ - k - 1,
             .columns = std::min(kernels::kReflectedColumns, columns - first),
             .stride = columns},
            vectors + (k + 1) * columns + first);
      }
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
      off_diagonal_[k] = first;
      if (squares > kMinSquares) {
        const float length = std::sqrt(squares + first * first);
        off_diagonal_[k] = first > 0 ? -length : length;
        row[k + 1] = first - off_diagonal_[k];
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
  std::vector<float> off_diagonal_;
};

// One inverse iteration of a single vector.
void Iterate(const kernels::Tridiagonal& t, float value, float tiny,
             kernels::FactorsOfRow* memory, float* vector) {
  const std::vector<float> values(kernels::kEigenLanes, value);
  std::vector<float> x(t.size * kernels::kEigenLanes);
  for (size_t i = 0; i < t.size; ++i) {
    x[i * kernels::kEigenLanes] = vector[i];
  }
  kernels::Active().joint->find_eigenvectors(
      t, values.data(), tiny, false, memory, kernels::kEigenLanes, x.data());
  for (size_t i = 0; i < t.size; ++i) {
    vector[i] = x[i * kernels::kEigenLanes];
  }
}

// A vector that is hardly at right angles to any other that matters, from a
// linear congruential generator (D. E. Knuth, The Art of Computer Programming,
// volume 2, 3rd edition, 1997, section 3.3.4, table 1, line 16).
void FillStart(uint32_t seed, size_t size, float* vector) {
  uint32_t state = seed;
  for (size_t i = 0; i < size; ++i) {
    state = state * 1664525 + 1013904223;
    vector[i] = static_cast<float>(static_cast<int32_t>(state)) * 0x1p-31f;
  }
}

// Bounds of all eigenvalues (S. Gershgorin, 1931), and 0.
struct Bounds {
  explicit Bounds(const kernels::Tridiagonal& t) {
    for (size_t i = 0; i < t.size; ++i) {
      const float radius = std::abs(t.off_diagonal[i]) +
                           (i == 0 ? 0 : std::abs(t.off_diagonal[i - 1]));
      low = std::min(low, t.diagonal[i] - radius);
      high = std::max(high, t.diagonal[i] + radius);
    }
  }
  float low = 0;
  float high = 0;
};

// Rows of eigenvectors, by value, of which inverse iteration alone does not
// separate those of near-degenerate eigenvalues.
class Orthogonalizer {
 public:
  Orthogonalizer(const std::vector<float>& values, size_t size, float* rows)
      : values_(values), size_(size), rows_(rows) {}

  // Takes from row `j` what it has of the rows before it whose values are
  // close, and normalizes it. False when next to nothing was left.
  bool Separate(size_t j) {
    float* const vector = Row(j);
    for (size_t k = j;
         k-- > 0 && values_[k] - values_[j] < kClose * values_[0];) {
      const float* const before = Row(k);
      const float product = Product(before, vector, size_);
      for (size_t i = 0; i < size_; ++i) vector[i] -= product * before[i];
    }
    const float length = std::sqrt(Product(vector, vector, size_));
    if (!(length > 0)) return false;
    for (size_t i = 0; i < size_; ++i) vector[i] /= length;
    return length > kMinLength;
  }
  float* Row(size_t j) { return rows_ + j * size_; }

 private:
  const std::vector<float>& values_;
  const size_t size_;
  float* const rows_;
};

}  // namespace

PrincipalComponents FindPrincipalComponents(absl::Span<const float> matrix,
                                            size_t size, size_t most) {
  constexpr size_t kLanes = kernels::kEigenLanes;
  const Reduction reduction(matrix, size);
  const kernels::Tridiagonal t = reduction.tridiagonal();
  const Bounds bounds(t);
  const size_t wanted = std::min(most, size);
  const size_t columns = RoundUp(wanted, kLanes);
  std::vector<float> values(columns);
  std::vector<float> vectors(size * columns, 1.0f);
  const float tiny = bounds.high * std::numeric_limits<float>::epsilon();
  const kernels::JointKernels& joint = *kernels::Active().joint;
  const auto memory =
      std::make_unique_for_overwrite<kernels::FactorsOfRow[]>(size);
  for (size_t first = 0; first < columns; first += kLanes) {
    joint.find_eigenvalues(t, first, bounds.low, bounds.high, &values[first]);
    joint.find_eigenvectors(t, &values[first], tiny, true, memory.get(),
                            columns, &vectors[first]);
  }

  PrincipalComponents components;
  while (components.values.size() < wanted &&
         values[components.values.size()] > kMinValue * values[0]) {
    components.values.push_back(values[components.values.size()]);
  }
  std::vector<float> rows(components.values.size() * size);
  Transpose(vectors.data(), columns, size, components.values.size(),
            rows.data(), size);
  Orthogonalizer orthogonalizer(components.values, size, rows.data());
  size_t count = 0;
  for (; count < components.values.size(); ++count) {
    float* const row = orthogonalizer.Row(count);
    bool separate = orthogonalizer.Separate(count);
    // What is left of a vector is what another iteration should begin with;
    // where that is only rounding errors, any other vector is.
    for (uint32_t restart = 0; !separate && restart < 2 * kRestarts;
         ++restart) {
      if (restart >= kRestarts) {
        FillStart(static_cast<uint32_t>(2 * kRestarts * count) + restart, size,
                  row);
        orthogonalizer.Separate(count);
      }
      Iterate(t, values[count], tiny, memory.get(), row);
      separate = orthogonalizer.Separate(count);
    }
    if (!separate) break;
  }
  components.values.resize(count);
  components.stride = RoundUp(count, kernels::kSymmetricColumns);
  components.vectors.resize(size * components.stride);
  Transpose(rows.data(), size, count, size, components.vectors.data(),
            components.stride);
  reduction.ReflectBack(components.stride, components.vectors.data());
  return components;
}

}  // namespace kvcompress::coding
