// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "pipeline/attention.h"

#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kvcompress/error.h"

namespace kvcompress {
namespace {

// Beyond it nothing differs.
constexpr float kMaxOctaves = 64;

absl::Status Refuse(absl::string_view message, absl::string_view tensor = "") {
  return MakeError(absl::StatusCode::kInvalidArgument, message,
                   {.reason = "INVALID_ATTENTION",
                    .tensor = std::string(tensor),
                    .field = "options.attention"});
}

}  // namespace

absl::Status ValidateAttention(const LayerAttention& attention) {
  for (const auto& [layer, octaves] : attention) {
    for (const float each : octaves) {
      if (each >= -kMaxOctaves && each <= kMaxOctaves) continue;
      return Refuse(absl::StrCat("attention of layer ", layer,
                                 " is not a number from -64 to 64"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckAttention(const LayerAttention& attention,
                            const CodecTraits& traits,
                            const std::vector<ArtefactTensor>& tensors) {
  if (attention.empty()) return absl::OkStatus();
  if (!traits.weighs_tokens) {
    return Refuse(absl::StrCat(traits.name, " does not weigh tokens"));
  }
  std::set<uint32_t> layers;
  for (const ArtefactTensor& tensor : tensors) {
    const TensorSpec& spec = tensor.spec;
    if (!spec.layer) continue;
    layers.insert(*spec.layer);
    const auto given = attention.find(*spec.layer);
    if (given == attention.end()) continue;
    if (spec.shape.size() != 4 || spec.shape[2] != given->second.size()) {
      return Refuse(absl::StrCat("attention for ", given->second.size(),
                                 " tokens of layer ", *spec.layer,
                                 " does not fit the tensor"),
                    spec.name);
    }
  }
  for (const auto& [layer, octaves] : attention) {
    if (!layers.contains(layer)) {
      return Refuse(absl::StrCat("no tensor is of layer ", layer));
    }
  }
  return absl::OkStatus();
}

void AttentionHints::Tell(const TensorSpec& spec, const LayerAttention& given,
                          EncodeHints* hints) const {
  hints->attention.clear();
  hints->from_keys = KeyHints();
  if (!spec.layer) return;
  const auto found = given.find(*spec.layer);
  if (found != given.end()) hints->attention = found->second;
  if (spec.role != TensorRole::kValue) return;
  if (spec.layer == layer_) hints->from_keys.attention = from_keys_;
}

void AttentionHints::Learn(const TensorSpec& spec, KeyHints told) {
  if (spec.role != TensorRole::kKey) return;
  layer_ = spec.layer;
  from_keys_ = std::move(told.attention);
}

}  // namespace kvcompress
