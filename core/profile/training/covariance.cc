// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "profile/training/covariance.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/kernels.h"

namespace kvcompress::profile {
namespace {

constexpr float kMaxPart = 2047;
// Columns of the product that are made at once.
constexpr size_t kColumns = 256;

}  // namespace

Covariance::Covariance(std::vector<float> origins, std::vector<float> units)
    : origins_(std::move(origins)),
      units_(std::move(units)),
      sums_(origins_.size()),
      products_(origins_.size() * origins_.size()) {}

void Covariance::Add(absl::Span<const float> values, size_t count) {
  const size_t n = channels();
  const size_t inner = count + count % 2;
  left_.assign(n * inner, 0);
  for (size_t t = 0; t < count; ++t) {
    for (size_t i = 0; i < n; ++i) {
      const float part = (values[t * n + i] - origins_[i]) / units_[i];
      const auto integer = static_cast<int16_t>(
          std::lrint(std::clamp(part, -kMaxPart, kMaxPart)));
      left_[i * inner + t] = integer;
      sums_[i] += integer;
    }
  }
  tokens_ += count;
  for (size_t first = 0; first < n; first += kColumns) {
    const size_t columns = std::min(kColumns, n - first);
    const size_t rows = first + columns;
    pairs_.resize(inner * columns);
    for (size_t j = 0; j < columns; ++j) {
      for (size_t t = 0; t < inner; ++t) {
        pairs_[(t / 2 * columns + j) * 2 + t % 2] =
            left_[(first + j) * inner + t];
      }
    }
    product_.resize(rows * columns);
    kernels::Active().multiply(
        left_.data(), pairs_.data(),
        {.rows = rows, .inner = inner, .columns = columns}, product_.data());
    for (size_t i = 0; i < rows; ++i) {
      float* const out = &products_[i * n + first];
      for (size_t j = 0; j < columns; ++j) {
        out[j] += static_cast<float>(product_[i * columns + j]);
      }
    }
  }
}

std::vector<float> Covariance::Means() const {
  std::vector<float> means(channels());
  for (size_t i = 0; i < channels(); ++i) {
    const double mean =
        static_cast<double>(sums_[i]) / static_cast<double>(tokens_);
    means[i] = static_cast<float>(double{origins_[i]} + mean * units_[i]);
  }
  return means;
}

std::vector<float> Covariance::Take() {
  const size_t n = channels();
  const double tokens = static_cast<double>(tokens_);
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = i; j < n; ++j) {
      const double mean = static_cast<double>(sums_[i]) / tokens *
                          (static_cast<double>(sums_[j]) / tokens);
      const auto value =
          static_cast<float>(double{products_[i * n + j]} / tokens - mean);
      products_[i * n + j] = value;
      products_[j * n + i] = value;
    }
  }
  return std::move(products_);
}

}  // namespace kvcompress::profile
