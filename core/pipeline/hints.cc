// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "pipeline/hints.h"

#include <memory>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "kvcompress/error.h"
#include "quantization/rope_candidates.h"

namespace kvcompress {
namespace {

// Whether this can be a base, or 0 for none.
bool IsRopeTheta(double theta) {
  return theta == 0 || (theta >= 1 && theta <= 1e12);
}

}  // namespace

absl::Status ValidateRope(const CompressOptions& options) {
  const auto invalid = [](absl::string_view what, std::string field) {
    return MakeError(absl::StatusCode::kInvalidArgument, what,
                     {.reason = "INVALID_OPTIONS", .field = std::move(field)});
  };
  if (options.rope_theta && !IsRopeTheta(*options.rope_theta)) {
    return invalid("rope_theta must be 0 or a number from 1 to 1e12",
                   "options.rope_theta");
  }
  if (!options.rope) return absl::OkStatus();
  if (options.rope_theta) {
    return invalid("rope and rope_theta say the same: give one of them",
                   "options.rope");
  }
  return ValidateRope(*options.rope);
}

EncodeHints HintsFrom(
    const CompressOptions& options,
    const std::vector<std::pair<std::string, std::string>>& metadata) {
  EncodeHints hints{.rope_theta = options.rope_theta, .effort = options.effort};
  if (options.rope) {
    hints.rope = std::make_shared<const RopeParameters>(*options.rope);
    return hints;
  }
  for (const auto& [key, value] : metadata) {
    double theta;
    if (key == "rope_theta" && !hints.rope_theta &&
        absl::SimpleAtod(value, &theta) && IsRopeTheta(theta)) {
      hints.rope_theta = theta;
    }
  }
  return hints;
}

absl::Status CheckRope(const Codec& codec, const TensorSpec& spec,
                       const EncodeHints& hints) {
  if (hints.rope == nullptr || !codec.traits().role_aware ||
      spec.role != TensorRole::kKey || spec.shape.size() != 4 ||
      coding::FitsRope(*hints.rope, spec.layer, spec.shape.back())) {
    return absl::OkStatus();
  }
  return MakeError(
      absl::StatusCode::kInvalidArgument,
      absl::StrCat("a head of ", spec.shape.back(),
                   " channels cannot have the rotary embedding that was "
                   "declared: is it that of this model, and is the layout "
                   "[batch, heads, tokens, head_dim]?"),
      {.reason = "INVALID_OPTIONS",
       .tensor = spec.name,
       .field = "options.rope"});
}

absl::StatusOr<std::optional<uint64_t>> FirstPosition(
    const std::vector<std::pair<std::string, std::string>>& metadata) {
  for (const auto& [key, value] : metadata) {
    if (key != "first_token") continue;
    uint32_t position = 0;
    if (absl::SimpleAtoi(value, &position)) return position;
    return MakeError(
        absl::StatusCode::kInvalidArgument,
        absl::StrCat("the metadata's first_token is ", QuoteName(value),
                     ", which is no number below 2^32"),
        {.reason = "INVALID_OPTIONS"});
  }
  return std::nullopt;
}

}  // namespace kvcompress
