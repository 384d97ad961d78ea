// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "transform/leading_components.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/joint.h"
#include "kernels/kernels.h"
#include "transform/layout.h"

namespace kvcompress::coding {
namespace {

// Vectors beyond those that are wanted, and how often all are multiplied by
// the matrix before the last time.
constexpr size_t kMoreVectors = 64;
constexpr int kIterations = 2;
// Vectors that are made orthogonal at once.
constexpr size_t kPanel = 32;
// A part of the right matrix that stays in the nearest caches.
constexpr size_t kInner = 256;
constexpr size_t kColumns = 32;
// A vector that lost all but this part of its length has nothing of its own.
constexpr double kMinLength = 1e-6;

// Rows of floats. Columns that `stride` adds are zeros.
struct Rows {
  Rows(size_t count, size_t columns)
      : count(count),
        columns(columns),
        stride(RoundUp(columns, kernels::kSymmetricColumns)),
        values(count * stride) {}
  float* at(size_t row) { return &values[row * stride]; }
  const float* at(size_t row) const { return &values[row * stride]; }

  size_t count;
  size_t columns;
  size_t stride;
  std::vector<float> values;
};

// Adds left [rows, inner] times right [inner, columns], rows of the latter
// `right_stride` apart, to `sums`.
void AddProduct(const float* left, size_t left_stride, const float* right,
                size_t right_stride, size_t inner, size_t columns, size_t rows,
                size_t stride, float* sums) {
  std::vector<float> part(kInner * kColumns);
  for (size_t first = 0; first < columns; first += kColumns) {
    const size_t count = std::min(kColumns, columns - first);
    const size_t padded = RoundUp(count, kernels::kSymmetricColumns);
    for (size_t k = 0; k < inner; k += kInner) {
      const size_t depth = std::min(kInner, inner - k);
      std::fill(part.begin(), part.end(), 0.0f);
      for (size_t i = 0; i < depth; ++i) {
        std::copy_n(right + (k + i) * right_stride + first, count,
                    &part[i * padded]);
      }
      kernels::Active().joint->add_float_product(
          {.left = left + k,
           .left_stride = left_stride,
           .right = part.data(),
           .right_stride = padded,
           .inner = depth},
          {.rows = rows, .columns = padded, .stride = stride}, sums + first);
    }
  }
}

// Rows times a symmetric matrix.
Rows Multiply(const Rows& rows, absl::Span<const float> matrix) {
  Rows product(rows.count, rows.columns);
  AddProduct(rows.values.data(), rows.stride, matrix.data(), rows.columns,
             rows.columns, rows.columns, rows.count, product.stride,
             product.values.data());
  return product;
}

// Rows times the rows of another, transposed.
Rows Products(const Rows& left, size_t left_count, const float* right,
              size_t right_count, size_t right_stride) {
  Rows turned(left.columns, right_count);
  Transpose(right, right_stride, right_count, left.columns,
            turned.values.data(), turned.stride);
  Rows products(left_count, right_count);
  AddProduct(left.values.data(), left.stride, turned.values.data(),
             turned.stride, left.columns, right_count, left_count,
             products.stride, products.values.data());
  return products;
}

double Dot(const float* a, const float* b, size_t count) {
  double sums[8] = {};
  size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    for (size_t l = 0; l < 8; ++l) sums[l] += double{a[i + l]} * b[i + l];
  }
  for (; i < count; ++i) sums[0] += double{a[i]} * b[i];
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) +
         ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

// Random vectors: a linear congruential generator (D. E. Knuth, The Art of
// Computer Programming, volume 2, 3rd edition, 1997, section 3.3.4, table 1,
// line 26), of whose states the upper half is taken.
class Generator {
 public:
  void Fill(size_t count, float* values) {
    for (size_t i = 0; i < count; ++i) {
      state_ = state_ * 6364136223846793005u + 1442695040888963407u;
      values[i] =
          static_cast<float>(static_cast<int32_t>(state_ >> 32)) * 0x1p-31f;
    }
  }

 private:
  uint64_t state_ = 1;
};

// Makes rows orthonormal, by block Gram-Schmidt: a panel at a time loses what
// it has of the panels before it, twice, and its rows what they have of each
// other. A row without anything of its own begins again as a random one.
class Orthonormalizer {
 public:
  void Run(Rows* rows) {
    for (size_t first = 0; first < rows->count; first += kPanel) {
      const size_t count = std::min(kPanel, rows->count - first);
      for (int round = 0; round < 2; ++round) {
        Project(first, count, rows);
        for (size_t row = first; row < first + count; ++row) {
          Normalize(first, row, rows);
        }
      }
    }
  }

 private:
  static void Project(size_t first, size_t count, Rows* rows) {
    if (first == 0) return;
    Rows parts = Products(*rows, first, rows->at(first), count, rows->stride);
    Rows turned(count, first);
    Transpose(parts.values.data(), parts.stride, first, count,
              turned.values.data(), turned.stride);
    for (float& part : turned.values) part = -part;
    AddProduct(turned.values.data(), turned.stride, rows->values.data(),
               rows->stride, first, rows->columns, count, rows->stride,
               rows->at(first));
  }

  void Normalize(size_t first, size_t row, Rows* rows) {
    float* const vector = rows->at(row);
    const size_t n = rows->columns;
    const double before = std::sqrt(Dot(vector, vector, n));
    for (size_t other = first; other < row; ++other) {
      const auto part = static_cast<float>(Dot(rows->at(other), vector, n));
      for (size_t i = 0; i < n; ++i) vector[i] -= part * rows->at(other)[i];
    }
    double length = std::sqrt(Dot(vector, vector, n));
    if (!(length > kMinLength * before)) {
      generator_.Fill(n, vector);
      length = std::sqrt(Dot(vector, vector, n));
    }
    const auto inverse = static_cast<float>(1 / length);
    for (size_t i = 0; i < n; ++i) vector[i] *= inverse;
  }

  Generator generator_;
};

}  // namespace

PrincipalComponents FindLeadingComponents(absl::Span<const float> matrix,
                                          size_t size, size_t most) {
  Rows rows(std::min(most + kMoreVectors, size), size);
  Generator generator;
  for (size_t row = 0; row < rows.count; ++row) {
    generator.Fill(size, rows.at(row));
  }
  Orthonormalizer orthonormalizer;
  for (int i = 0; i < kIterations; ++i) {
    rows = Multiply(rows, matrix);
    orthonormalizer.Run(&rows);
  }

  // The matrix within the subspace: its components are those of the whole.
  const Rows product = Multiply(rows, matrix);
  const Rows within = Products(product, rows.count, rows.values.data(),
                               rows.count, rows.stride);
  std::vector<float> inner(rows.count * rows.count);
  float largest = 0;
  for (size_t i = 0; i < rows.count; ++i) {
    for (size_t j = 0; j < rows.count; ++j) {
      inner[i * rows.count + j] = (within.at(i)[j] + within.at(j)[i]) / 2;
    }
    float& diagonal = inner[i * rows.count + i];
    diagonal = std::max(diagonal, 0.0f);
    largest = std::max(largest, diagonal);
  }
  for (float& each : inner) each /= largest;
  PrincipalComponents components =
      FindPrincipalComponents(inner, rows.count, std::min(most, size));
  for (float& value : components.values) value *= largest;

  const size_t count = components.values.size();
  Rows mixes(count, rows.count);
  Transpose(components.vectors.data(), components.stride, rows.count, count,
            mixes.values.data(), mixes.stride);
  Rows vectors(count, size);
  AddProduct(mixes.values.data(), mixes.stride, rows.values.data(), rows.stride,
             rows.count, size, count, vectors.stride, vectors.values.data());
  components.vectors.assign(size * components.stride, 0);
  Transpose(vectors.values.data(), vectors.stride, count, size,
            components.vectors.data(), components.stride);
  return components;
}

}  // namespace kvcompress::coding
