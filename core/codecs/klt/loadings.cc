// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/klt/loadings.h"

#include <Eigen/Eigenvalues>
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "codecs/klt/principal.h"
#include "kernels/joint.h"
#include "kernels/kernels.h"

namespace kvcompress::klt {
namespace {

// Mean square of a reflector's integers below which it is not sent.
constexpr double kLeastSquare = 0.5;

// The most that the sum of a channel's squares may be in integers: products of
// two channels sum to no more.
constexpr double kMostSquares = 0x1p30;
constexpr double kMostInteger = 32760;
// Tokens whose integers stay in a near cache.
constexpr size_t kTokens = 64;

// A reflection that was sent: v and 2 / |v|^2.
struct Reflection {
  explicit Reflection(absl::Span<const int32_t> integers) {
    double squares = 0;
    for (const int32_t integer : integers) {
      vector.push_back(static_cast<float>(integer));
      squares += double{1} * integer * integer;
    }
    const double head = integers[0];
    const double moved =
        head + (head >= 0 ? 1 : -1) * std::floor(std::sqrt(squares));
    vector[0] = static_cast<float>(moved);
    factor = static_cast<float>(2 / (squares - head * head + moved * moved));
  }

  std::vector<float> vector;
  float factor = 0;
};

// Where the vectors of close eigenvalues are not told apart otherwise: all
// eigenvectors.
PrincipalAxes SolveAll(const std::vector<float>& matrix, size_t size,
                       size_t most) {
  const Eigen::Index n = static_cast<Eigen::Index>(size);
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXf> solver(
      Eigen::Map<const Eigen::MatrixXf>(matrix.data(), n, n));
  PrincipalAxes axes;
  if (solver.info() != Eigen::Success) return axes;
  for (Eigen::Index j = n - 1; j >= 0 && axes.values.size() < most; --j) {
    axes.values.push_back(std::max(0.0f, solver.eigenvalues()[j]));
    for (Eigen::Index i = 0; i < n; ++i) {
      axes.vectors.push_back(solver.eigenvectors()(i, j));
    }
  }
  return axes;
}

}  // namespace

void Covariance::Add(absl::Span<const float* const> rows, size_t channels,
                     absl::Span<const float> means, double largest,
                     double squares) {
  const size_t heads = size_ / channels;
  const size_t tokens = rows.size() / heads;
  count_ += tokens;
  if (largest == 0 || squares == 0) return;
  // Finite also where values are so small that they are next to nothing.
  const float scale = static_cast<float>(
      std::min({kMostInteger / largest, std::sqrt(kMostSquares / squares),
                double{std::numeric_limits<float>::max()}}));
  const kernels::JointKernels& joint = *kernels::Active().joint;
  std::vector<int16_t> pairs(kTokens * size_);
  std::vector<int32_t> products(size_ * size_);
  for (size_t begin = 0; begin < tokens; begin += kTokens) {
    const size_t end = std::min(begin + kTokens, tokens);
    size_t count = 0;
    for (size_t t = begin; t < end; t += 2, ++count) {
      for (size_t h = 0; h < heads; ++h) {
        joint.pair_rows(rows[t * heads + h],
                        t + 1 < end ? rows[(t + 1) * heads + h] : nullptr,
                        channels, &means[h * channels], scale,
                        &pairs[2 * (count * size_ + h * channels)]);
      }
    }
    joint.multiply_columns_of(pairs.data(), count, size_, products.data());
  }
  const double unit = 1 / (static_cast<double>(scale) * scale);
  for (size_t i = 0; i < size_; ++i) {
    for (size_t j = i; j < size_; ++j) {
      sums_[i * size_ + j] += products[i * size_ + j] * unit;
    }
  }
}

Loadings FindLoadings(const Covariance& covariance, size_t most) {
  const size_t size = covariance.size();
  Loadings loadings = {.size = size};
  if (covariance.count() == 0 || most == 0) return loadings;
  // A binary32 need not hold the square of a large value.
  double largest = 0;
  for (size_t i = 0; i < size; ++i) {
    largest = std::max(largest, covariance.at(i, i));
  }
  if (largest == 0) return loadings;
  std::vector<float> matrix(size * size);
  const double scale = 1 / largest;
  for (size_t i = 0; i < size; ++i) {
    for (size_t j = i; j < size; ++j) {
      matrix[i * size + j] = static_cast<float>(covariance.at(i, j) * scale);
    }
    for (size_t j = 0; j < i; ++j) matrix[i * size + j] = matrix[j * size + i];
  }
  std::optional<PrincipalAxes> axes = FindPrincipalAxes(matrix, size, most);
  if (!axes) axes = SolveAll(matrix, size, most);
  loadings.count = axes->values.size();
  loadings.rows = std::move(axes->vectors);
  const double unit =
      std::sqrt(largest / static_cast<double>(covariance.count()));
  for (size_t j = 0; j < loadings.count; ++j) {
    const float length = static_cast<float>(unit) * std::sqrt(axes->values[j]);
    for (size_t i = 0; i < size; ++i) loadings.rows[j * size + i] *= length;
  }
  return loadings;
}

Reflectors MakeReflectors(const Loadings& loadings, double unit) {
  constexpr size_t kColumns = kernels::kSymmetricColumns;
  const size_t size = loadings.size;
  Reflectors reflectors(size);
  const size_t stride = (loadings.count + kColumns - 1) / kColumns * kColumns;
  // [size, loadings], reflected by what was sent so far.
  std::vector<float> columns(size * stride);
  const float scale = static_cast<float>(1 / unit);
  for (size_t j = 0; j < loadings.count; ++j) {
    for (size_t i = 0; i < size; ++i) {
      columns[i * stride + j] = loadings.rows[j * size + i] * scale;
    }
  }
  std::vector<int32_t> integers;
  for (size_t j = 0; j < loadings.count; ++j) {
    integers.clear();
    double squares = 0;
    for (size_t i = j; i < size; ++i) {
      const float value = columns[i * stride + j];
      const float bounded =
          std::min(std::abs(value) + 0.5f, static_cast<float>(kMaxReflector));
      const int32_t magnitude = static_cast<int32_t>(bounded);
      integers.push_back(value < 0 ? -magnitude : magnitude);
      squares += double{1} * magnitude * magnitude;
    }
    if (squares <= kLeastSquare * static_cast<double>(size)) break;
    reflectors.Append(integers);
    const Reflection reflection(integers);
    const size_t first = (j + 1) / kColumns * kColumns;
    if (first == stride) break;
    kernels::Active().joint->reflect_rows(
        reflection.vector.data(), reflection.factor,
        {.rows = size - j, .columns = stride - first, .stride = stride},
        &columns[j * stride + first]);
  }
  return reflectors;
}

size_t VectorsFor(TensorRole role, uint64_t tokens) {
  if (tokens < 128) return 0;
  const bool value = role == TensorRole::kValue;
  if (tokens < 256) return value ? 0 : 8;
  if (tokens < 512) return value ? 16 : 32;
  return tokens < 1024 ? 64 : 96;
}

}  // namespace kvcompress::klt
