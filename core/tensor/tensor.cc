// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "kvcompress/tensor.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
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

void InferRole(TensorSpec* spec) {
  absl::string_view rest = spec->name;
  if (!absl::ConsumePrefix(&rest, "layer_")) return;
  TensorRole role;
  if (absl::ConsumeSuffix(&rest, "_key")) {
    role = TensorRole::kKey;
  } else if (absl::ConsumeSuffix(&rest, "_value")) {
    role = TensorRole::kValue;
  } else {
    return;
  }
  constexpr size_t kMostDigits = 9;
  if (rest.empty() || rest.size() > kMostDigits ||
      (rest.size() > 1 && rest[0] == '0')) {
    return;
  }
  uint32_t layer = 0;
  for (char c : rest) {
    if (c < '0' || c > '9') return;
    layer = layer * 10 + static_cast<uint32_t>(c - '0');
  }
  if (spec->role == TensorRole::kNone) spec->role = role;
  if (!spec->layer) spec->layer = layer;
}

}  // namespace kvcompress
