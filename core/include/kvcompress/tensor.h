// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// What is known of a tensor before its bytes: name, type, shape, and its part
// in attention.

#ifndef KVCOMPRESS_TENSOR_H_
#define KVCOMPRESS_TENSOR_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kvcompress/dtype.h"

namespace kvcompress {

enum class TensorRole : uint8_t { kNone, kKey, kValue };

struct TensorSpec {
  // Unique within a file.
  std::string name;
  DType dtype = DType::kF32;
  // Outermost first, C order; empty for a scalar. A four-dimensional tensor is
  // [batch, heads, tokens, head_dim].
  std::vector<uint64_t> shape;
  TensorRole role = TensorRole::kNone;
  // From 0; unknown when not set.
  std::optional<uint32_t> layer;
  // Of a tensor of the input: its layout (kvcompress/layout.h), where the
  // caller declared one; of a view: that of the tensor it is a view of.
  std::string layout;
};

// Most dimensions a tensor may have.
inline constexpr size_t kMaxRank = 32;

// Product of the dimensions, 1 for a scalar, multiplied from the outermost.
// INVALID_ARGUMENT when the product or its size in bytes passes 2^63 - 1 at any
// step (a later 0 does not save it, as in the reference parser), or when there
// are more than kMaxRank dimensions.
absl::StatusOr<uint64_t> ElementCount(const TensorSpec& spec);

// Sets role and layer, each only where it is not already set, from a name that
// core/FORMAT.md has under "Roles". Other names leave them as they are.
void InferRole(TensorSpec* spec);

}  // namespace kvcompress

#endif  // KVCOMPRESS_TENSOR_H_
