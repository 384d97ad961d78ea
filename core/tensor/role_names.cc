// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// What the names that engines and libraries give keys and values say of them.

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "kvcompress/tensor.h"

namespace kvcompress {
namespace {

// A name is `before`, the layer, and `after`.
struct NamingRule {
  TensorRole role;
  absl::string_view before;
  absl::string_view after;
  // Whether components that end in a dot may come first.
  bool has_path;
  // Whether components that begin with a dot, at least one, stand between the
  // layer and `after`; only with a path.
  bool has_middle = false;
};

// core/FORMAT.md, "Roles".
constexpr NamingRule kNamingRules[] = {
    {TensorRole::kKey, "layer_", "_key", false},
    {TensorRole::kValue, "layer_", "_value", false},
    {TensorRole::kKey, "past_key_values.", ".key", true},
    {TensorRole::kValue, "past_key_values.", ".value", true},
    {TensorRole::kKey, "present.", ".key", true},
    {TensorRole::kValue, "present.", ".value", true},
    {TensorRole::kKey, "key_cache.", "", true},
    {TensorRole::kValue, "value_cache.", "", true},
    {TensorRole::kKey, "key_cache_", "", true},
    {TensorRole::kValue, "value_cache_", "", true},
    {TensorRole::kKey, "layers.", ".keys", true},
    {TensorRole::kValue, "layers.", ".values", true},
    {TensorRole::kKey, "layers.", ".k_cache", true, true},
    {TensorRole::kValue, "layers.", ".v_cache", true, true},
    {TensorRole::kKey, "layers.", ".key_cache", true, true},
    {TensorRole::kValue, "layers.", ".value_cache", true, true},
    {TensorRole::kKey, "h.", ".k_cache", true, true},
    {TensorRole::kValue, "h.", ".v_cache", true, true},
    {TensorRole::kKey, "h.", ".key_cache", true, true},
    {TensorRole::kValue, "h.", ".value_cache", true, true},
    {TensorRole::kKey, "k_buffer.", "", true},
    {TensorRole::kValue, "v_buffer.", "", true},
    // Keys and values together: a layer, and no role.
    {TensorRole::kNone, "layers.", ".attn", true, true},
    {TensorRole::kNone, "layers.", ".kv_cache", true, true},
    {TensorRole::kNone, "h.", ".attn", true, true},
    {TensorRole::kNone, "h.", ".kv_cache", true, true},
    {TensorRole::kNone, "kv_cache.", "", true},
    {TensorRole::kNone, "kv_buffer.", "", true},
    {TensorRole::kKey, "cache_k_l", "", false},
    {TensorRole::kValue, "cache_v_l", "", false},
    // Prompt caches of MLX, and dumps of lists of layers.
    {TensorRole::kKey, "layer_", "_keys", false},
    {TensorRole::kValue, "layer_", "_values", false},
    {TensorRole::kKey, "layer_", "_k", false},
    {TensorRole::kValue, "layer_", "_v", false},
    {TensorRole::kKey, "layer_", "_K", false},
    {TensorRole::kValue, "layer_", "_V", false},
    {TensorRole::kKey, "layer", "_key", false},
    {TensorRole::kValue, "layer", "_value", false},
    {TensorRole::kKey, "layer.", ".key", true},
    {TensorRole::kValue, "layer.", ".value", true},
    // Inputs and outputs of exported models.
    {TensorRole::kKey, "past_key_", "", true},
    {TensorRole::kValue, "past_value_", "", true},
    {TensorRole::kKey, "present_key_", "", true},
    {TensorRole::kValue, "present_value_", "", true},
    {TensorRole::kKey, "past_", "_key", true},
    {TensorRole::kValue, "past_", "_value", true},
    {TensorRole::kKey, "present_", "_key", true},
    {TensorRole::kValue, "present_", "_value", true},
    {TensorRole::kKey, "past_key_values_", "_key", true},
    {TensorRole::kValue, "past_key_values_", "_value", true},
    {TensorRole::kKey, "present_key_values_", "_key", true},
    {TensorRole::kValue, "present_key_values_", "_value", true},
    {TensorRole::kKey, "present_key_values.", ".key", true},
    {TensorRole::kValue, "present_key_values.", ".value", true},
    {TensorRole::kKey, "past_key_values.", ".decoder.key", true},
    {TensorRole::kValue, "past_key_values.", ".decoder.value", true},
    {TensorRole::kKey, "past_key_values.", ".encoder.key", true},
    {TensorRole::kValue, "past_key_values.", ".encoder.value", true},
    {TensorRole::kKey, "present.", ".decoder.key", true},
    {TensorRole::kValue, "present.", ".decoder.value", true},
    {TensorRole::kKey, "present.", ".encoder.key", true},
    {TensorRole::kValue, "present.", ".encoder.value", true},
    {TensorRole::kKey, "k_cache_", "", true},
    {TensorRole::kValue, "v_cache_", "", true},
    {TensorRole::kKey, "layers.", ".k_cache", true},
    {TensorRole::kValue, "layers.", ".v_cache", true},
    {TensorRole::kKey, "layers.", ".key_cache", true},
    {TensorRole::kValue, "layers.", ".value_cache", true},
    {TensorRole::kKey, "key_", "", false},
    {TensorRole::kValue, "value_", "", false},
    {TensorRole::kKey, "k_", "", false},
    {TensorRole::kValue, "v_", "", false},
    {TensorRole::kKey, "K_", "", false},
    {TensorRole::kValue, "V_", "", false},
    {TensorRole::kKey, "kv.", ".k", true},
    {TensorRole::kValue, "kv.", ".v", true},
    {TensorRole::kKey, "kv.", ".key", true},
    {TensorRole::kValue, "kv.", ".value", true},
    {TensorRole::kKey, "kv.", ".keys", true},
    {TensorRole::kValue, "kv.", ".values", true},
};

// Of the number of a layer.
constexpr size_t kMaxDigits = 9;

bool IsDigit(char byte) {
  return absl::ascii_isdigit(static_cast<unsigned char>(byte));
}

// The number of a layer as names have it: without leading zeros.
std::optional<uint32_t> ReadLayer(absl::string_view digits) {
  if (digits.empty() || digits.size() > kMaxDigits) return std::nullopt;
  if (digits.size() > 1 && digits.front() == '0') return std::nullopt;
  uint32_t layer = 0;
  for (const char byte : digits) {
    if (!IsDigit(byte)) return std::nullopt;
    layer = 10 * layer + static_cast<uint32_t>(byte - '0');
  }
  return layer;
}

// Ways in which a name has one of the forms.
struct Findings {
  size_t count = 0;
  // Of the last.
  TensorRole role = TensorRole::kNone;
  uint32_t layer = 0;

  void Add(const NamingRule& rule, std::optional<uint32_t> found) {
    if (!found) return;
    ++count;
    role = rule.role;
    layer = *found;
  }
};

void Find(absl::string_view name, const NamingRule& rule, Findings* findings) {
  if (!absl::ConsumeSuffix(&name, rule.after)) return;
  if (!rule.has_middle) {
    size_t digits = name.size();
    while (digits > 0 && name.size() - digits <= kMaxDigits &&
           IsDigit(name[digits - 1])) {
      --digits;
    }
    const std::optional<uint32_t> layer = ReadLayer(name.substr(digits));
    name.remove_suffix(name.size() - digits);
    if (absl::ConsumeSuffix(&name, rule.before) &&
        (name.empty() || (rule.has_path && name.back() == '.'))) {
      findings->Add(rule, layer);
    }
    return;
  }
  for (size_t at = name.find(rule.before); at != name.npos;
       at = name.find(rule.before, at + 1)) {
    if (at > 0 && name[at - 1] != '.') continue;
    const absl::string_view rest = name.substr(at + rule.before.size());
    const size_t end = rest.find('.');
    if (end == rest.npos) return;
    findings->Add(rule, ReadLayer(rest.substr(0, end)));
  }
}

}  // namespace

void InferRole(TensorSpec* spec) {
  Findings findings;
  for (const NamingRule& rule : kNamingRules) {
    Find(spec->name, rule, &findings);
  }
  if (findings.count != 1) return;
  if (spec->role == TensorRole::kNone) spec->role = findings.role;
  if (!spec->layer) spec->layer = findings.layer;
}

}  // namespace kvcompress
