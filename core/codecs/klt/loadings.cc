// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/klt/loadings.h"

#include <Eigen/Eigenvalues>
#include <algorithm>
#include <cmath>

#include "kernels/kernels.h"

namespace kvcompress::klt {
namespace {

// Mean square of a reflector's integers below which it is not sent.
constexpr double kLeastSquare = 0.5;

// Tokens whose products are summed at once, and the most that the sum of a
// channel's squares may then be: products of two channels sum to no more.
constexpr size_t kTokens = 1024;
constexpr double kMostSquares = 0x1p30;
constexpr double kMostInteger = 32767;

// A reflection that was sent: v and 2 / |v|^2.
struct Reflection {
  std::vector<float> vector;
  float factor = 0;
};

// The reflection of integers that begin at dimension `first`.
Reflection MakeReflection(absl::Span<const int32_t> integers, size_t first,
                          size_t size) {
  Reflection reflection = {.vector = std::vector<float>(size)};
  double squares = 0;
  for (size_t i = 0; i < integers.size(); ++i) {
    reflection.vector[first + i] = static_cast<float>(integers[i]);
    squares += double{1} * integers[i] * integers[i];
  }
  const double head = integers[0];
  const double moved =
      head + (head >= 0 ? 1 : -1) * std::floor(std::sqrt(squares));
  reflection.vector[first] = static_cast<float>(moved);
  reflection.factor =
      static_cast<float>(2 / (squares - head * head + moved * moved));
  return reflection;
}

}  // namespace

void Covariance::Add(absl::Span<const float> samples) {
  for (size_t first = 0; first < samples.size(); first += kTokens * size_) {
    const absl::Span<const float> part =
        samples.subspan(first, kTokens * size_);
    const size_t tokens = part.size() / size_;
    const size_t padded = tokens + tokens % 2;
    std::vector<double> squares(size_);
    double largest = 0;
    for (size_t i = 0; i < part.size(); ++i) {
      const double x = part[i];
      squares[i % size_] += x * x;
      largest = std::max(largest, std::abs(x));
    }
    count_ += tokens;
    if (largest == 0) continue;
    const double most = *std::max_element(squares.begin(), squares.end());
    const double scale =
        std::min(kMostInteger / largest, std::sqrt(kMostSquares / most));
    // [channels, tokens], and [tokens, channels] in pairs of tokens.
    std::vector<int16_t> left(size_ * padded);
    std::vector<int16_t> right(padded * size_);
    for (size_t t = 0; t < tokens; ++t) {
      for (size_t i = 0; i < size_; ++i) {
        const int16_t x = static_cast<int16_t>(
            std::lrint(static_cast<double>(part[t * size_ + i]) * scale));
        left[i * padded + t] = x;
        right[(t / 2 * size_ + i) * 2 + t % 2] = x;
      }
    }
    std::vector<int32_t> products(size_ * size_);
    kernels::Active().multiply(
        left.data(), right.data(),
        {.rows = size_, .inner = padded, .columns = size_}, products.data());
    for (size_t i = 0; i < products.size(); ++i) {
      sums_[i] += products[i] / (scale * scale);
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
  const Eigen::Index n = static_cast<Eigen::Index>(size);
  Eigen::MatrixXf matrix(n, n);
  for (Eigen::Index i = 0; i < n; ++i) {
    for (Eigen::Index j = 0; j < n; ++j) {
      matrix(i, j) = static_cast<float>(
          covariance.at(static_cast<size_t>(i), static_cast<size_t>(j)) /
          largest);
    }
  }
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXf> solver(matrix);
  if (solver.info() != Eigen::Success) return loadings;
  loadings.count = std::min(most, size);
  loadings.rows.resize(loadings.count * size);
  const double unit =
      std::sqrt(largest / static_cast<double>(covariance.count()));
  for (size_t j = 0; j < loadings.count; ++j) {
    const Eigen::Index column = static_cast<Eigen::Index>(size - 1 - j);
    const float length =
        static_cast<float>(unit) *
        std::sqrt(std::max(0.0f, solver.eigenvalues()[column]));
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
  std::vector<float> y(size);
  std::vector<int32_t> integers;
  const float scale = static_cast<float>(1 / unit);
  for (size_t j = 0; j < loadings.count; ++j) {
    for (size_t i = 0; i < size; ++i) {
      y[i] = loadings.rows[j * size + i] * scale;
    }
    for (size_t k = 0; k < sent.size(); ++k) {
      // Components before k are zero. Eight sums that do not wait for each
      // other.
      const float* const vector = sent[k].vector.data();
      float sums[8] = {};
      size_t i = k;
      for (; i + 8 <= size; i += 8) {
        for (size_t l = 0; l < 8; ++l) sums[l] += vector[i + l] * y[i + l];
      }
      for (; i < size; ++i) sums[0] += vector[i] * y[i];
      const float product =
          sent[k].factor * (((sums[0] + sums[1]) + (sums[2] + sums[3])) +
                            ((sums[4] + sums[5]) + (sums[6] + sums[7])));
      for (i = k; i < size; ++i) y[i] -= product * vector[i];
    }
    integers.clear();
    double squares = 0;
    for (size_t i = j; i < size; ++i) {
      const double bounded = std::clamp<double>(
          std::round(static_cast<double>(y[i])), -kMaxReflector, kMaxReflector);
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
