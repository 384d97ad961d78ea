// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "kvcompress/tensor.h"

#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "kvcompress/error.h"

namespace kvcompress {
namespace {

// A name is `before`, the layer, and `after`.
struct NamingRule {
  TensorRole role;
  absl::string_view before;
  absl::string_view after;
  // Whether components that end in a dot may come first.
  bool has_path;
};

// core/FORMAT.md, "Roles".
constexpr NamingRule kNamingRules[] = {
    {TensorRole::kKey, "layer_", "_key", false},
    {TensorRole::kValue, "layer_", "_value", false},
    {TensorRole::kKey, "past_key_values.", ".key", true},
    {TensorRole::kValue, "past_key_values.", ".value", true},
    {TensorRole::kKey, "key_cache.", "", true},
    {TensorRole::kValue, "value_cache.", "", true},
    {TensorRole::kKey, "layers.", ".self_attn.k_cache", true},
    {TensorRole::kValue, "layers.", ".self_attn.v_cache", true},
    {TensorRole::kKey, "cache_k_l", "", false},
    {TensorRole::kValue, "cache_v_l", "", false},
};

// The layer that a name of this form has.
std::optional<uint32_t> LayerOf(absl::string_view name,
                                const NamingRule& rule) {
  if (!absl::ConsumeSuffix(&name, rule.after)) return std::nullopt;
  constexpr size_t kMaxDigits = 9;
  uint32_t layer = 0;
  uint32_t unit = 1;
  size_t digits = 0;
  while (digits <= kMaxDigits && !name.empty() &&
         absl::ascii_isdigit(static_cast<unsigned char>(name.back()))) {
    layer += unit * static_cast<uint32_t>(name.back() - '0');
    unit *= 10;
    ++digits;
    name.remove_suffix(1);
  }
  const bool padded = digits > 1 && layer < unit / 10;
  if (digits == 0 || digits > kMaxDigits || padded) return std::nullopt;
  if (!absl::ConsumeSuffix(&name, rule.before)) return std::nullopt;
  const bool whole = name.empty() || (rule.has_path && name.back() == '.');
  return whole ? std::optional(layer) : std::nullopt;
}

}  // namespace

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
  for (const NamingRule& rule : kNamingRules) {
    const std::optional<uint32_t> layer = LayerOf(spec->name, rule);
    if (!layer) continue;
    if (spec->role == TensorRole::kNone) spec->role = rule.role;
    if (!spec->layer) spec->layer = layer;
    return;
  }
}

}  // namespace kvcompress
