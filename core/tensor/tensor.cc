// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "kvcompress/tensor.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "kvcompress/error.h"

namespace kvcompress {

absl::StatusOr<uint64_t> ElementCount(const TensorSpec& spec) {
  constexpr uint64_t kMaxBytes = std::numeric_limits<int64_t>::max();
  if (spec.shape.size() > kMaxRank) {
    return MakeError(
        absl::StatusCode::kInvalidArgument,
        absl::StrCat("shape has ", spec.shape.size(), " dimensions"),
        {.reason = "RANK_TOO_LARGE", .tensor = spec.name, .limit = kMaxRank});
  }
  const uint64_t most = kMaxBytes / DTypeSize(spec.dtype);
  uint64_t count = 1;
  for (uint64_t dimension : spec.shape) {
    if (dimension != 0 && count > most / dimension) {
      return MakeError(absl::StatusCode::kInvalidArgument,
                       "the product of the shape overflows",
                       {.reason = "SHAPE_OVERFLOW", .tensor = spec.name});
    }
    count *= dimension;
  }
  return count;
}

}  // namespace kvcompress
