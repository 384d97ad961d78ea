// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The basis of a group, from the covariance of its channels. Internal to the
// library.

#ifndef KVCOMPRESS_PROFILE_TRAINING_BASIS_H_
#define KVCOMPRESS_PROFILE_TRAINING_BASIS_H_

#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kvcompress/profile.h"

namespace kvcompress::profile {

// Spread of a tensor whose values are all the same.
inline constexpr float kLeastSpread = 1e-6f;

// What each tensor is divided by: its spread, or the error that the usual
// bounds allow it (QualityThresholds).
enum class TensorUnit { kSpread, kBound };

// Sets scales, components and `decode` of a group with tensors and means: the
// principal components, at most `most`, where each tensor is divided by its
// unit. `covariance` is [channels, channels], in squared `units` of the
// channels. Returns the variances of the components. INVALID_ARGUMENT where
// there is no variance.
absl::StatusOr<std::vector<float>> FindBasis(std::vector<float> covariance,
                                             absl::Span<const float> units,
                                             TensorUnit unit, size_t most,
                                             ProfileGroup* group);

}  // namespace kvcompress::profile

#endif  // KVCOMPRESS_PROFILE_TRAINING_BASIS_H_
