// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Principal components of a group, also those that are tiny next to the
// largest. Internal to the library.

#ifndef KVCOMPRESS_PROFILE_TRAINING_COMPONENTS_H_
#define KVCOMPRESS_PROFILE_TRAINING_COMPONENTS_H_

#include <cstddef>
#include <vector>

namespace kvcompress::profile {

struct Components {
  std::vector<float> values;  // variances, about the largest first
  // Of length 1 and at right angles, [values.size(), size].
  std::vector<float> rows;
};

// At most `most` of a covariance, [size, size], symmetric, none of whose
// diagonal is below 0 and some of it is above. Those that are tiny next to the
// largest only with `tiny`: then there are `most`, or `size`.
Components FindAllComponents(std::vector<float> covariance, size_t size,
                             size_t most, bool tiny);

}  // namespace kvcompress::profile

#endif  // KVCOMPRESS_PROFILE_TRAINING_COMPONENTS_H_
