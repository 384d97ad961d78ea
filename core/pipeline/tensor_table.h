// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Tensors that are declared, instead of coming as a safetensors file. Internal
// to the library.

#ifndef KVCOMPRESS_PIPELINE_TENSOR_TABLE_H_
#define KVCOMPRESS_PIPELINE_TENSOR_TABLE_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "kvcompress/safetensors.h"
#include "kvcompress/tensor.h"

namespace kvcompress {

// The header of a file made of `tensors`, one after the other.
// INVALID_ARGUMENT for a name or metadata that is not UTF-8, for a reserved
// name, and for a shape that ElementCount refuses.
absl::StatusOr<SafetensorsHeader> HeaderOf(
    const std::vector<TensorSpec>& tensors,
    std::vector<std::pair<std::string, std::string>> metadata);

}  // namespace kvcompress

#endif  // KVCOMPRESS_PIPELINE_TENSOR_TABLE_H_
