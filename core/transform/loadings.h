// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The encoder's side of a basis: principal components of a block's tokens, and
// the integer reflectors that bring them close to the first axes. A decoder
// needs nothing of this, and another encoder may do otherwise.

#ifndef KVCOMPRESS_TRANSFORM_LOADINGS_H_
#define KVCOMPRESS_TRANSFORM_LOADINGS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "transform/basis.h"

namespace kvcompress::coding {

// Sums of products of channels over tokens, summed up in integers.
class Covariance {
 public:
  explicit Covariance(size_t size) : size_(size), sums_(size * size) {}

  size_t size() const { return size_; }
  size_t count() const { return count_; }
  // REQUIRES: row <= column.
  double at(size_t row, size_t column) const {
    return sums_[row * size_ + column];
  }

  // Adds tokens. `rows` has where the channels of a token begin, head by head:
  // [tokens, size / channels]. The channels have these `means`, which are taken
  // away; what is left has at most this magnitude and this sum of squares in a
  // channel. REQUIRES: at most kMaxTokens.
  static constexpr size_t kMaxTokens = 1024;
  void Add(absl::Span<const float* const> rows, size_t channels,
           absl::Span<const float> means, double largest, double squares);

 private:
  class Factors;

  size_t size_;
  size_t count_ = 0;
  std::vector<double> sums_;  // on the diagonal and right of it
};

// Eigenvectors of a covariance, each as long as the standard deviation along
// it, the largest first: the first `count` columns of a matrix [size, stride].
// Columns beyond are zeros.
struct Loadings {
  size_t size = 0;
  size_t count = 0;
  size_t stride = 0;  // a multiple of kernels::kSymmetricColumns
  std::vector<float> columns;
  // Variance of a channel, in the mean, beyond these.
  double residual = 0;
};

// The `most` largest.
Loadings FindLoadings(const Covariance& covariance, size_t most);

// Reflectors of loadings rounded to multiples of `unit`, as long as they are
// worth their bits.
Reflectors MakeReflectors(const Loadings& loadings, double unit);

}  // namespace kvcompress::coding

#endif  // KVCOMPRESS_TRANSFORM_LOADINGS_H_
