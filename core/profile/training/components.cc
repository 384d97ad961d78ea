// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "profile/training/components.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/types/span.h"
#include "transform/leading_components.h"
#include "transform/principal_components.h"

namespace kvcompress::profile {
namespace {

// Rows that are worked on while another stays in a near cache.
constexpr size_t kRowsAtOnce = 8;
// Up to these channels, and where more than a third of the components is
// wanted, all are found as fast.
constexpr size_t kMaxDenseChannels = 4096;
// What is left at least of a row of length 1 that is a component of its own.
constexpr float kLeastLength = 0.02f;

float LargestOfDiagonal(const std::vector<float>& matrix, size_t size) {
  float largest = 0;
  for (size_t i = 0; i < size; ++i) {
    largest = std::max(largest, matrix[i * size + i]);
  }
  return largest;
}

// Takes components from the covariance: those from `first` on.
void Deflate(const Components& components, size_t first, size_t size,
             std::vector<float>* covariance) {
  for (size_t begin = 0; begin < size; begin += kRowsAtOnce) {
    const size_t end = std::min(size, begin + kRowsAtOnce);
    for (size_t j = first; j < components.values.size(); ++j) {
      const float* const row = &components.rows[j * size];
      for (size_t i = begin; i < end; ++i) {
        const float factor = components.values[j] * row[i];
        float* const out = &(*covariance)[i * size];
        for (size_t l = 0; l < size; ++l) out[l] -= factor * row[l];
      }
    }
  }
  for (size_t i = 0; i < size; ++i) {
    float& diagonal = (*covariance)[i * size + i];
    diagonal = std::max(diagonal, 0.0f);
    for (size_t j = 0; j < i; ++j) {
      float& one = (*covariance)[i * size + j];
      float& other = (*covariance)[j * size + i];
      one = other = (one + other) / 2;
    }
  }
}

float Product(const float* a, const float* b, size_t size) {
  float sums[kRowsAtOnce] = {};
  size_t i = 0;
  for (; i + kRowsAtOnce <= size; i += kRowsAtOnce) {
    for (size_t lane = 0; lane < kRowsAtOnce; ++lane) {
      sums[lane] += a[i + lane] * b[i + lane];
    }
  }
  for (; i < size; ++i) sums[0] += a[i] * b[i];
  float product = 0;
  for (const float sum : sums) product += sum;
  return product;
}

// Takes from rows [rows, size] what they have of components [first, end).
void TakeAway(const Components& components, size_t first, size_t size,
              absl::Span<float> rows) {
  const size_t count = rows.size() / size;
  for (size_t begin = 0; begin < count; begin += kRowsAtOnce) {
    const size_t end = std::min(count, begin + kRowsAtOnce);
    for (size_t j = first; j < components.values.size(); ++j) {
      const float* const before = &components.rows[j * size];
      for (size_t r = begin; r < end; ++r) {
        float* const row = &rows[r * size];
        const float product = Product(before, row, size);
        for (size_t i = 0; i < size; ++i) row[i] -= product * before[i];
      }
    }
  }
}

// Adds what is left of a row, which has next to nothing of components before
// `first`, if that is enough. What rounding left of the others is taken away
// once more: twice is enough (W. Kahan, in B. N. Parlett, The Symmetric
// Eigenvalue Problem, 1980, section 6-9).
void Add(float value, size_t first, absl::Span<float> row,
         Components* components) {
  for (int pass = 0; pass < 2; ++pass) {
    TakeAway(*components, pass == 0 ? first : 0, row.size(), row);
    const float length = std::sqrt(Product(row.data(), row.data(), row.size()));
    if (!(length > kLeastLength)) return;
    for (float& part : row) part /= length;
  }
  components->values.push_back(value);
  components->rows.insert(components->rows.end(), row.begin(), row.end());
}

// Adds rows of length 1, with their variances. Those of close variances may be
// far from right angles to one another, or several the same: inverse iteration
// in binary32 does not tell them apart.
void AddAll(absl::Span<const float> values, absl::Span<float> rows, size_t size,
            Components* components) {
  for (size_t begin = 0; begin < values.size(); begin += kRowsAtOnce) {
    const size_t end = std::min(values.size(), begin + kRowsAtOnce);
    const size_t before = components->values.size();
    TakeAway(*components, 0, size,
             rows.subspan(begin * size, (end - begin) * size));
    for (size_t j = begin; j < end; ++j) {
      Add(values[j], before, rows.subspan(j * size, size), components);
    }
  }
}

// The principal components of a covariance whose largest entry is 1: of a large
// one, by an iteration that finds no others.
coding::PrincipalComponents FindComponents(absl::Span<const float> covariance,
                                           size_t size, size_t most) {
  most = std::min(most, size);
  const auto find = size > kMaxDenseChannels && 3 * most <= size
                        ? coding::FindLeadingComponents
                        : coding::FindPrincipalComponents;
  return find(covariance, size, most);
}

}  // namespace

Components FindAllComponents(std::vector<float> covariance, size_t size,
                             size_t most, bool tiny) {
  Components components;
  size_t deflated = 0;
  while (components.values.size() < std::min(most, size)) {
    const float largest = LargestOfDiagonal(covariance, size);
    if (!(largest > 0)) break;
    for (float& value : covariance) value /= largest;
    const coding::PrincipalComponents found = FindComponents(
        covariance, size, std::min(most, size) - components.values.size());
    for (float& value : covariance) value *= largest;
    std::vector<float> rows(found.values.size() * size);
    for (size_t j = 0; j < found.values.size(); ++j) {
      for (size_t i = 0; i < size; ++i) {
        rows[j * size + i] = found.vectors[i * found.stride + j];
      }
    }
    std::vector<float> values = found.values;
    for (float& value : values) value *= largest;
    AddAll(values, absl::MakeSpan(rows), size, &components);
    if (!tiny || components.values.size() == deflated) break;
    if (components.values.size() >= std::min(most, size)) break;
    Deflate(components, deflated, size, &covariance);
    deflated = components.values.size();
  }
  // Where nothing more is known of variances, any orthonormal rows do.
  std::vector<float> row(size);
  for (size_t i = 0;
       tiny && i < size && components.values.size() < std::min(most, size) &&
       !components.values.empty();
       ++i) {
    std::fill(row.begin(), row.end(), 0.0f);
    row[i] = 1;
    Add(components.values.back(), 0, absl::MakeSpan(row), &components);
  }
  return components;
}

}  // namespace kvcompress::profile
