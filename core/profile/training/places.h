// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// What caches to train from have. Internal to the library.

#ifndef KVCOMPRESS_PROFILE_TRAINING_PLACES_H_
#define KVCOMPRESS_PROFILE_TRAINING_PLACES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kvcompress/profile_training.h"

namespace kvcompress::profile {

// INVALID_ARGUMENT with the name of the cache and what is wrong with it.
absl::Status InvalidCache(const TrainingCache& cache, absl::string_view what);

// Tensors of a cache by layer and role.
using ByPlace = std::map<std::pair<uint32_t, TensorRole>, size_t>;

// INVALID_ARGUMENT if a tensor with a role and a layer is not numeric, not 3-D
// or 4-D, or repeats a layer and role.
absl::StatusOr<ByPlace> PlacesOf(const TrainingCache& cache);

}  // namespace kvcompress::profile

#endif  // KVCOMPRESS_PROFILE_TRAINING_PLACES_H_
