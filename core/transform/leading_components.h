// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The leading principal components of a large covariance, by subspace
// iteration from random vectors with a Rayleigh-Ritz step (N. Halko, P. G.
// Martinsson, J. A. Tropp, Finding Structure with Randomness, SIAM Review 53,
// 2011, algorithms 4.4 and 5.3), in binary32 with a fixed order of operations.
// For the training of profiles.

#ifndef KVCOMPRESS_TRANSFORM_LEADING_COMPONENTS_H_
#define KVCOMPRESS_TRANSFORM_LEADING_COMPONENTS_H_

#include <cstddef>

#include "absl/types/span.h"
#include "transform/principal_components.h"

namespace kvcompress::coding {

// As FindPrincipalComponents does, for a part of the components: some 5 `most`
// `size`^2 multiplications, and memory for 4 (`most` + 64) `size` floats, where
// that takes 2 `size`^3 and a copy of the matrix. Components whose eigenvalues
// are close to the last may be mixed with those of smaller ones. The same on
// every machine. REQUIRES: as there, and that no eigenvalue is below 0 but by
// rounding.
PrincipalComponents FindLeadingComponents(absl::Span<const float> matrix,
                                          size_t size, size_t most);

}  // namespace kvcompress::coding

#endif  // KVCOMPRESS_TRANSFORM_LEADING_COMPONENTS_H_
