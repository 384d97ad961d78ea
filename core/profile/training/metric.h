// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// How much errors of channels matter. Internal to the library.

#ifndef KVCOMPRESS_PROFILE_TRAINING_METRIC_H_
#define KVCOMPRESS_PROFILE_TRAINING_METRIC_H_

#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kvcompress/profile.h"
#include "kvcompress/profile_training.h"

namespace kvcompress::profile {

// Of the channels of one tensor: errors matter by their length after it.
struct MetricBlock {
  size_t width = 0;            // channels
  std::vector<float> matrix;   // [width, width], symmetric
  std::vector<float> inverse;  // the same
};

// The blocks of the tensors of a group. INVALID_ARGUMENT where `source` lacks
// one, or it is no symmetric, positive definite F32 matrix of that size.
absl::StatusOr<std::vector<MetricBlock>> ReadMetric(
    TrainingCache* source, absl::Span<const ProfileTensor> tensors);

// As FindBasis, but each tensor is multiplied by its block. Sets `encode` too.
absl::StatusOr<std::vector<float>> FindMetricBasis(
    std::vector<float> covariance, absl::Span<const float> units,
    absl::Span<const MetricBlock> metric, size_t most, ProfileGroup* group);

}  // namespace kvcompress::profile

#endif  // KVCOMPRESS_PROFILE_TRAINING_METRIC_H_
