// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "transform/loadings.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/joint.h"
#include "kernels/kernels.h"
#include "transform/layout.h"
#include "transform/principal_components.h"

namespace kvcompress::coding {
namespace {

// Mean square of a reflector's integers below which it is not sent.
constexpr double kMinSquare = 0.5;

// The most that the sum of a channel's squares may be in integers: products of
// two channels sum to no more.
constexpr double kMaxSquares = 0x1p30;
constexpr double kMaxInteger = 32760;
// Tokens whose integers stay in a near cache, and of which products take whole
// ones at once.
constexpr size_t kTokens = 256;
constexpr size_t kWhole = 64;
constexpr size_t kColumns = kernels::kSymmetricColumns;

// A reflection that was sent: v and 2 / |v|^2.
struct Reflection {
  Reflection(absl::Span<const int32_t> integers, double squares)
      : vector(integers.begin(), integers.end()) {
    const double head = integers[0];
    const double moved =
        head + (head >= 0 ? 1 : -1) * std::floor(std::sqrt(squares));
    vector[0] = static_cast<float>(moved);
    factor = static_cast<float>(2 / (squares - head * head + moved * moved));
  }

  std::vector<float> vector;
  float factor = 0;
};

// Adds a matrix of `shape` without a stride to one with it.
void AddPart(const int32_t* part, kernels::RowsShape shape, int32_t* sums) {
  for (size_t i = 0; i < shape.rows; ++i) {
    for (size_t j = 0; j < shape.columns; ++j) {
      sums[i * shape.stride + j] += part[i * shape.columns + j];
    }
  }
}

}  // namespace

// The integers of the tokens of each head, as both sides of products.
class Covariance::Factors {
 public:
  Factors(size_t heads, size_t channels)
      : channels_(channels),
        head_size_(kTokens * channels),
        pairs_(head_size_),
        left_(heads * head_size_) {}

  // Makes those of a head from tokens, whose channels begin `stride` pointers
  // apart at `rows`. The right side is that of the head that came last.
  void Set(size_t head, absl::Span<const float* const> rows, size_t stride,
           const float* means, float scale) {
    const size_t tokens = (rows.size() + stride - 1) / stride;
    // Zeros fill what the kernels take at once.
    inner_ = RoundUp(tokens, kWhole);
    const kernels::KernelSet& set = kernels::Active();
    std::fill_n(pairs_.begin(), inner_ * channels_, int16_t{0});
    for (size_t t = 0; t < tokens; t += 2) {
      set.joint->pair_rows(rows[t * stride],
                           t + 1 < tokens ? rows[(t + 1) * stride] : nullptr,
                           channels_, means, scale, &pairs_[t * channels_]);
    }
    Transpose<2>(pairs_.data(), channels_, inner_ / 2, channels_,
                 &left_[head * head_size_], inner_ / 2);
  }

  // The sums of products of a head's channels with those of the last one's.
  void Multiply(size_t head, int32_t* product) const {
    kernels::Active().multiply(
        &left_[head * head_size_], pairs_.data(),
        {.rows = channels_, .inner = inner_, .columns = channels_}, product);
  }

 private:
  const size_t channels_;
  const size_t head_size_;
  size_t inner_ = 0;  // tokens, and zeros
  Lines pairs_;       // of tokens: the right side
  std::vector<int16_t> left_;
};

void Covariance::Add(absl::Span<const float* const> rows, size_t channels,
                     absl::Span<const float> means, double largest,
                     double squares) {
  const size_t heads = size_ / channels;
  const size_t tokens = rows.size() / heads;
  count_ += tokens;
  if (largest == 0 || squares == 0) return;
  // Finite also where values are so small that they are next to nothing.
  const float scale = static_cast<float>(
      std::min({kMaxInteger / largest, std::sqrt(kMaxSquares / squares),
                double{std::numeric_limits<float>::max()}}));
  Factors factors(heads, channels);
  std::vector<int32_t> product(channels * channels);
  std::vector<int32_t> products(size_ * size_);
  for (size_t begin = 0; begin < tokens; begin += kTokens) {
    const size_t count = std::min(kTokens, tokens - begin);
    for (size_t h = 0; h < heads; ++h) {
      factors.Set(h, rows.subspan(begin * heads + h, (count - 1) * heads + 1),
                  heads, &means[h * channels], scale);
      for (size_t above = 0; above <= h; ++above) {
        factors.Multiply(above, product.data());
        AddPart(product.data(),
                {.rows = channels, .columns = channels, .stride = size_},
                &products[above * channels * size_ + h * channels]);
      }
    }
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
  double trace = 0;
  for (size_t i = 0; i < size; ++i) {
    largest = std::max(largest, covariance.at(i, i));
    trace += covariance.at(i, i);
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
  PrincipalComponents components = FindPrincipalComponents(matrix, size, most);
  loadings.count = components.values.size();
  loadings.stride = components.stride;
  loadings.columns = std::move(components.vectors);
  const double unit =
      std::sqrt(largest / static_cast<double>(covariance.count()));
  std::vector<float> lengths(loadings.stride);
  for (size_t j = 0; j < loadings.count; ++j) {
    lengths[j] = static_cast<float>(unit) * std::sqrt(components.values[j]);
    trace -= largest * components.values[j];
  }
  loadings.residual =
      std::max(trace, 0.0) /
      (static_cast<double>(covariance.count()) * static_cast<double>(size));
  for (size_t i = 0; i < size; ++i) {
    for (size_t j = 0; j < loadings.stride; ++j) {
      loadings.columns[i * loadings.stride + j] *= lengths[j];
    }
  }
  return loadings;
}

Reflectors MakeReflectors(const Loadings& loadings, double unit) {
  const size_t size = loadings.size;
  const size_t stride = loadings.stride;
  const float scale = static_cast<float>(1 / unit);
  Reflectors reflectors(size);
  std::vector<float> columns(loadings.columns);
  for (float& value : columns) value *= scale;
  std::vector<Reflection> sent;
  const auto reflect = [&](size_t j, size_t first, size_t end) {
    kernels::Active().joint->reflect_rows(
        sent[j].vector.data(), sent[j].factor,
        {.rows = size - j, .columns = end - first, .stride = stride},
        &columns[j * stride + first]);
  };
  // Columns do not see each other.
  for (size_t begin = 0; begin < loadings.count;
       begin += kernels::kReflectedColumns) {
    const size_t end = std::min(begin + kernels::kReflectedColumns, stride);
    for (size_t j = 0; j < begin; ++j) reflect(j, begin, end);
    for (size_t j = begin; j < std::min(end, loadings.count); ++j) {
      std::vector<int32_t> integers(size - j);
      for (size_t i = j; i < size; ++i) {
        const float value = columns[i * stride + j];
        const float bounded =
            std::min(std::abs(value) + 0.5f, static_cast<float>(kMaxReflector));
        const int32_t magnitude = static_cast<int32_t>(bounded);
        integers[i - j] = value < 0 ? -magnitude : magnitude;
      }
      double squares = 0;
      for (const double integer : integers) squares += integer * integer;
      if (squares <= kMinSquare * static_cast<double>(size)) {
        return reflectors;
      }
      reflectors.Append(integers);
      sent.emplace_back(integers, squares);
      const size_t first = (j + 1) / kColumns * kColumns;
      if (first < end) reflect(j, first, end);
    }
  }
  return reflectors;
}

}  // namespace kvcompress::coding
