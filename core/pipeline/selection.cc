// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "pipeline/selection.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kvcompress/error.h"
#include "pipeline/patterns.h"
#include "status/macros.h"

namespace kvcompress {
namespace {

constexpr absl::string_view kField = "options.tensors";
constexpr size_t kTokenDimension = 2;
constexpr size_t kHeadDimension = 3;

uint64_t BytesPerToken(const TensorSpec& spec) {
  return spec.shape[kHeadDimension] * DTypeSize(spec.dtype);
}

}  // namespace

absl::StatusOr<std::vector<bool>> SelectTensors(
    const std::vector<std::string>& patterns,
    absl::Span<const absl::string_view> names) {
  KVC_RETURN_IF_ERROR(CheckPatterns(patterns, kField));
  if (patterns.empty() || names.empty()) {
    return std::vector<bool>(names.size(), true);
  }
  KVC_ASSIGN_OR_RETURN(PatternMatches matches,
                       MatchPatterns(patterns, names, kField));
  if (matches.unmatched) {
    return MakeError(
        absl::StatusCode::kInvalidArgument,
        absl::StrCat("no tensor of the artefact matches ",
                     QuoteName(patterns[*matches.unmatched])),
        {.reason = "NO_TENSOR_SELECTED", .field = std::string(kField)});
  }
  return std::move(matches.matched);
}

absl::Status NarrowToTokens(TokenRange tokens, TensorSpec* spec) {
  if (spec->shape.size() != 4) {
    return MakeError(
        absl::StatusCode::kInvalidArgument,
        absl::StrCat(
            "a range of tokens needs [batch, heads, tokens, head_dim], "
            "but the tensor has ",
            spec->shape.size(), " dimensions"),
        {.reason = "INVALID_TOKENS",
         .tensor = spec->name,
         .field = "options.tokens"});
  }
  uint64_t& dimension = spec->shape[kTokenDimension];
  if (tokens.first >= tokens.second || tokens.second > dimension) {
    return MakeError(absl::StatusCode::kInvalidArgument,
                     absl::StrCat("tokens ", tokens.first, ":", tokens.second,
                                  " are empty or not within the tensor's"),
                     {.reason = "INVALID_TOKENS",
                      .tensor = spec->name,
                      .limit = dimension,
                      .field = "options.tokens"});
  }
  dimension = tokens.second - tokens.first;
  return absl::OkStatus();
}

TokenFilter::TokenFilter(const TensorSpec& spec, TokenRange tokens)
    : element_size_(DTypeSize(spec.dtype)),
      period_(spec.shape[kTokenDimension] * BytesPerToken(spec)),
      begin_(tokens.first * BytesPerToken(spec)),
      end_(tokens.second * BytesPerToken(spec)) {}

bool TokenFilter::Overlaps(uint64_t begin, uint64_t end) const {
  begin *= element_size_;
  end *= element_size_;
  if (end - begin >= period_) return true;
  const uint64_t head = begin / period_ * period_;
  const auto overlaps = [&](uint64_t origin) {
    return std::max(begin, origin + begin_) < std::min(end, origin + end_);
  };
  return overlaps(head) || overlaps(head + period_);
}

void TokenFilter::Append(absl::string_view bytes, std::string* out) {
  while (!bytes.empty()) {
    const absl::string_view part = bytes.substr(0, period_ - position_);
    const uint64_t from = std::max(position_, begin_);
    const uint64_t to = std::min(position_ + part.size(), end_);
    if (from < to) {
      const absl::string_view kept = part.substr(from - position_, to - from);
      out->append(kept.data(), kept.size());
    }
    bytes.remove_prefix(part.size());
    position_ = (position_ + part.size()) % period_;
  }
}

}  // namespace kvcompress
