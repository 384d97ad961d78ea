// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/klt/loadings.h"

#include <Eigen/Eigenvalues>
#include <algorithm>
#include <cmath>

namespace kvcompress::klt {
namespace {

// Mean square of a reflector's integers below which it is not sent.
constexpr double kLeastSquare = 0.5;

Eigen::MatrixXd Covariance(absl::Span<const float> samples, size_t size) {
  std::vector<double> sums(size * size);
  const size_t count = samples.size() / size;
  for (size_t s = 0; s < count; ++s) {
    const float* const x = &samples[s * size];
    for (size_t i = 0; i < size; ++i) {
      const double xi = x[i];
      double* const row = &sums[i * size];
      for (size_t j = 0; j <= i; ++j) row[j] += xi * x[j];
    }
  }
  const Eigen::Index n = static_cast<Eigen::Index>(size);
  Eigen::MatrixXd result(n, n);
  for (Eigen::Index i = 0; i < n; ++i) {
    for (Eigen::Index j = 0; j <= i; ++j) {
      result(i, j) = result(j, i) =
          sums[static_cast<size_t>(i * n + j)] / static_cast<double>(count);
    }
  }
  return result;
}

// A reflection that was sent: v and 2 / |v|^2.
struct Reflection {
  std::vector<double> vector;
  double factor = 0;
};

// The reflection of integers that begin at dimension `first`.
Reflection MakeReflection(absl::Span<const int32_t> integers, size_t first,
                          size_t size) {
  Reflection reflection = {.vector = std::vector<double>(size)};
  double squares = 0;
  for (size_t i = 0; i < integers.size(); ++i) {
    reflection.vector[first + i] = integers[i];
    squares += double{1} * integers[i] * integers[i];
  }
  const double head = integers[0];
  const double moved =
      head + (head >= 0 ? 1 : -1) * std::floor(std::sqrt(squares));
  reflection.vector[first] = moved;
  reflection.factor = 2 / (squares - head * head + moved * moved);
  return reflection;
}

}  // namespace

Loadings FindLoadings(absl::Span<const float> samples, size_t size,
                      size_t most) {
  Loadings loadings = {.size = size};
  if (samples.empty() || most == 0) return loadings;
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solver(
      Covariance(samples, size));
  if (solver.info() != Eigen::Success) return loadings;
  loadings.count = std::min(most, size);
  loadings.rows.resize(loadings.count * size);
  for (size_t j = 0; j < loadings.count; ++j) {
    const Eigen::Index column = static_cast<Eigen::Index>(size - 1 - j);
    const double length =
        std::sqrt(std::max(0.0, solver.eigenvalues()[column]));
    for (size_t i = 0; i < size; ++i) {
      loadings.rows[j * size + i] =
          length * solver.eigenvectors()(static_cast<Eigen::Index>(i), column);
    }
  }
  return loadings;
}

Reflectors MakeReflectors(const Loadings& loadings, double unit) {
  const size_t size = loadings.size;
  Reflectors reflectors(size);
  std::vector<Reflection> sent;
  std::vector<double> y(size);
  std::vector<int32_t> integers;
  for (size_t j = 0; j < loadings.count; ++j) {
    for (size_t i = 0; i < size; ++i) y[i] = loadings.rows[j * size + i] / unit;
    for (const Reflection& each : sent) {
      double product = 0;
      for (size_t i = 0; i < size; ++i) product += each.vector[i] * y[i];
      product *= each.factor;
      for (size_t i = 0; i < size; ++i) y[i] -= product * each.vector[i];
    }
    integers.clear();
    double squares = 0;
    for (size_t i = j; i < size; ++i) {
      const double bounded =
          std::clamp<double>(std::round(y[i]), -kMaxReflector, kMaxReflector);
      integers.push_back(static_cast<int32_t>(bounded));
      squares += bounded * bounded;
    }
    if (squares <= kLeastSquare * static_cast<double>(size)) break;
    reflectors.Append(integers);
    sent.push_back(MakeReflection(integers, j, size));
  }
  return reflectors;
}

}  // namespace kvcompress::klt
