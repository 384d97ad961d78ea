// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The rotary position embeddings of a model, found in a cache. Internal to the
// library.

#ifndef KVCOMPRESS_PROFILE_TRAINING_ROTATIONS_H_
#define KVCOMPRESS_PROFILE_TRAINING_ROTATIONS_H_

#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvcompress/profile.h"
#include "kvcompress/profile_training.h"

namespace kvcompress::profile {

// Sets the rotation of each layer's keys to what the cache has, and the list of
// rotations; where none is found, to the one that most layers have. All tensors
// with a role and a layer are of numbers, of three or four dimensions.
// `rope_theta` is 0 for none.
absl::Status FindRotations(TrainingCache* cache,
                           std::optional<double> rope_theta,
                           ProfileContent* content);

// Takes the rotations from tensors `layer_{L}_rotation` of a metric, F64
// [pairs]: the radians that each pair of channels (p, p + pairs) of the keys of
// layer L is rotated by for each token. Returns whether there are any; layers
// without one are not rotated. INVALID_ARGUMENT for other tensors of that name.
absl::StatusOr<bool> TakeRotations(TrainingCache* metric,
                                   ProfileContent* content);

}  // namespace kvcompress::profile

#endif  // KVCOMPRESS_PROFILE_TRAINING_ROTATIONS_H_
