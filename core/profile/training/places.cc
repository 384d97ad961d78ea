// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "profile/training/places.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "kvcompress/error.h"

namespace kvcompress::profile {

absl::Status InvalidCache(const TrainingCache& cache, absl::string_view what) {
  return MakeError(absl::StatusCode::kInvalidArgument,
                   absl::StrCat(cache.name(), ": ", what),
                   {.reason = "INVALID_TRAINING_CACHE"});
}

absl::StatusOr<ByPlace> PlacesOf(const TrainingCache& cache) {
  ByPlace places;
  const std::vector<TensorSpec>& tensors = cache.tensors();
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorSpec& spec = tensors[i];
    if (spec.role == TensorRole::kNone || !spec.layer) continue;
    const size_t rank = spec.shape.size();
    if (!IsNumber(spec.dtype) || (rank != 3 && rank != 4)) {
      return InvalidCache(cache, absl::StrCat(QuoteName(spec.name),
                                              " is not [batch, heads, tokens, "
                                              "head_dim] of numbers"));
    }
    if (!places.emplace(std::pair(*spec.layer, spec.role), i).second) {
      return InvalidCache(cache,
                          absl::StrCat(QuoteName(spec.name),
                                       ": its layer has another tensor of "
                                       "this role"));
    }
  }
  return places;
}

}  // namespace kvcompress::profile
