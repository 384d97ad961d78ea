// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "pipeline/selection.h"

#include <fnmatch.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kvcompress/decompressor.h"
#include "kvcompress/error.h"
#include "status/macros.h"

namespace kvcompress {
namespace {

constexpr size_t kTokenDimension = 2;
constexpr size_t kHeadDimension = 3;

// A call of fnmatch takes as long as so many bytes more.
constexpr uint64_t kCallBytes = 16;

// Patterns and names are of others' choosing, and the time to match them, which
// nothing interrupts, goes with the product of their lengths.
absl::Status CheckPatterns(const std::vector<std::string>& patterns,
                           absl::Span<const ArtefactTensor> tensors) {
  if (patterns.size() > kMaxPatterns) {
    return MakeError(absl::StatusCode::kInvalidArgument,
                     absl::StrCat(patterns.size(), " patterns are too many"),
                     {.reason = "INVALID_OPTIONS",
                      .limit = kMaxPatterns,
                      .field = "options.tensors"});
  }
  uint64_t pattern_bytes = 0;
  for (const std::string& each : patterns) {
    pattern_bytes += each.size() + kCallBytes;
  }
  uint64_t name_bytes = 0;
  for (const ArtefactTensor& each : tensors) {
    name_bytes += each.spec.name.size() + kCallBytes;
  }
  if (name_bytes == 0 || pattern_bytes <= kMaxPatternWork / name_bytes) {
    return absl::OkStatus();
  }
  return MakeError(
      absl::StatusCode::kInvalidArgument,
      absl::StrCat(pattern_bytes, " bytes of patterns, each counted as ",
                   kCallBytes, " more, are too many for the names of ",
                   tensors.size(), " tensors"),
      {.reason = "INVALID_OPTIONS",
       .limit = kMaxPatternWork / name_bytes,
       .field = "options.tensors"});
}

uint64_t BytesPerToken(const TensorSpec& spec) {
  return spec.shape[kHeadDimension] * DTypeSize(spec.dtype);
}

}  // namespace

absl::StatusOr<std::vector<bool>> SelectTensors(
    const std::vector<std::string>& patterns,
    absl::Span<const ArtefactTensor> tensors) {
  KVC_RETURN_IF_ERROR(CheckPatterns(patterns, tensors));
  std::vector<bool> selected(tensors.size(), patterns.empty());
  for (const std::string& pattern : patterns) {
    bool matches = tensors.empty();
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (fnmatch(pattern.c_str(), tensors[i].spec.name.c_str(), 0) != 0) {
        continue;
      }
      matches = selected[i] = true;
    }
    if (!matches) {
      return MakeError(
          absl::StatusCode::kInvalidArgument,
          absl::StrCat("no tensor of the artefact matches ",
                       QuoteName(pattern)),
          {.reason = "NO_TENSOR_SELECTED", .field = "options.tensors"});
    }
  }
  return selected;
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
