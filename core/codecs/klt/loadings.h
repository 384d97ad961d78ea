// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The encoder's side of a basis: principal directions of a block's tokens, and
// the integer reflectors that bring them close to the first axes. A decoder
// needs nothing of this, and another encoder may do otherwise.

#ifndef KVCOMPRESS_CODECS_KLT_LOADINGS_H_
#define KVCOMPRESS_CODECS_KLT_LOADINGS_H_

#include <cstddef>
#include <vector>

#include "absl/types/span.h"
#include "codecs/klt/basis.h"

namespace kvcompress::klt {

// Eigenvectors of a covariance, each as long as the standard deviation along
// it, the largest first: row j at [j * size].
struct Loadings {
  size_t size = 0;
  size_t count = 0;
  std::vector<double> rows;
};

// The `most` largest of the covariance of `samples`, [samples, size], whose
// mean is taken as zero.
Loadings FindLoadings(absl::Span<const float> samples, size_t size,
                      size_t most);

// Reflectors of loadings rounded to multiples of `unit`, as long as they are
// worth their bits.
Reflectors MakeReflectors(const Loadings& loadings, double unit);

}  // namespace kvcompress::klt

#endif  // KVCOMPRESS_CODECS_KLT_LOADINGS_H_
