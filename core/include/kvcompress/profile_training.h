// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Trains a profile from caches of one model (kvcompress/profile.h).

#ifndef KVCOMPRESS_PROFILE_TRAINING_H_
#define KVCOMPRESS_PROFILE_TRAINING_H_

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kvcompress/profile.h"
#include "kvcompress/tensor.h"

namespace kvcompress {

// A cache whose first token is at position 0. It is read several times, a
// tensor at a time.
class TrainingCache {
 public:
  virtual ~TrainingCache() = default;

  // What errors call it.
  virtual const std::string& name() const = 0;
  // With roles and layers.
  virtual const std::vector<TensorSpec>& tensors() const = 0;
  // All bytes of a tensor, by its index.
  virtual absl::StatusOr<std::string> Read(size_t tensor) = 0;
};

struct TrainingOptions {
  std::string label;  // of the model
  // About how many layers' keys and values are transformed together; 0 for all.
  // Groups are of equal size, but for one layer: 24 layers are 12 and 12.
  // Memory and time go with the square and the cube of their channels.
  size_t layers_per_group = 10;
  size_t components = 1024;  // the most of a group
  // Base of the rotary position embedding of the keys, 0 for none; found in
  // the data where neither it nor a rotation of the metric is given.
  std::optional<double> rope_theta;
  // Empty for high, max and ultra at 0.5, 1 and 1.5 spreads of a tensor, with
  // `contract` for that preset alone. Steps are rounded as the format asks.
  std::vector<ProfilePreset> presets;
  // A matrix [channels, channels] of F32 for each tensor, with its role and
  // layer; the channels are those of all heads, keys' rotation undone. Errors
  // matter by their length after it. Null: by tensors' spreads. Tensors
  // `layer_{L}_rotation`, F64 [pairs], may give the rotation of layers' keys:
  // the radians for each token of channels (p, p + pairs) of a head.
  TrainingCache* metric = nullptr;
  // Without a metric, errors matter by the usual bounds of a tensor
  // (QualityThresholds) in place of its spread.
  bool contract = false;
  // A trained profile whose groups, rotations, bases and record of training are
  // taken, so that only presets and their classes are new. Null for none.
  const ProfileContent* basis = nullptr;
  std::string note;  // behind the record of training
  // Called with the steps done and the steps there are; an error ends the
  // training. May be null.
  std::function<absl::Status(size_t done, size_t all)> progress;
};

// The bytes of the profile: the same for the same caches in the same order.
// INVALID_ARGUMENT when there is no cache, a cache has other tensors than the
// first, or values that are not finite, or the metric lacks a tensor or is not
// symmetric and positive definite.
absl::StatusOr<std::string> TrainProfile(
    const TrainingOptions& options, absl::Span<TrainingCache* const> caches);

}  // namespace kvcompress

#endif  // KVCOMPRESS_PROFILE_TRAINING_H_
