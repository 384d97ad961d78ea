// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The principal components of a covariance: the eigenvectors of its largest
// eigenvalues and no others, by reduction to a tridiagonal matrix, bisection
// and inverse iteration (J. H. Wilkinson, The Algebraic Eigenvalue Problem,
// 1965, chapter 5), in binary32 with a fixed order of operations. For encoders
// only.

#ifndef KVCOMPRESS_TRANSFORM_PRINCIPAL_COMPONENTS_H_
#define KVCOMPRESS_TRANSFORM_PRINCIPAL_COMPONENTS_H_

#include <cstddef>
#include <vector>

#include "absl/types/span.h"

namespace kvcompress::coding {

struct PrincipalComponents {
  std::vector<float> values;  // the largest first
  // Of length 1: columns of a matrix [size, stride], that of value j the j-th.
  // Columns beyond are zeros.
  std::vector<float> vectors;
  size_t stride = 0;  // a multiple of kernels::kSymmetricColumns
};

// Those of the `most` largest eigenvalues of a symmetric matrix, [size, size],
// that are not tiny next to the largest. Fewer when eigenvalues are so close
// that their vectors cannot be separated. The same on every machine. REQUIRES:
// the largest entry of the diagonal is 1, and none is below 0.
PrincipalComponents FindPrincipalComponents(absl::Span<const float> matrix,
                                            size_t size, size_t most);

}  // namespace kvcompress::coding

#endif  // KVCOMPRESS_TRANSFORM_PRINCIPAL_COMPONENTS_H_
