// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The fallback of ecsq: 8-bit integers in groups of 64, each with a bfloat16
// scale. It takes any finite tensor and sets the size that ecsq never exceeds.
// Specified in core/FORMAT.md, "ecsq".

#ifndef KVCOMPRESS_QUANTIZATION_INT8_H_
#define KVCOMPRESS_QUANTIZATION_INT8_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "kvcompress/dtype.h"

namespace kvcompress::coding {

inline constexpr size_t kInt8Group = 64;
inline constexpr size_t kInt8BlockElements = 4096;

constexpr uint64_t Int8Size(uint64_t elements) {
  return elements + 2 * (elements / kInt8Group + (elements % kInt8Group != 0));
}

// Appends the groups of `values` to `*payload` and writes what they decode to.
void EncodeInt8(DType dtype, absl::Span<const float> values,
                std::string* payload, uint8_t* decoded);

// Decodes Int8Size(elements) bytes, at most kInt8BlockElements elements. False
// when a rule of the format is broken.
bool DecodeInt8(DType dtype, absl::Span<const uint8_t> payload, size_t elements,
                uint8_t* decoded);

}  // namespace kvcompress::coding

#endif  // KVCOMPRESS_QUANTIZATION_INT8_H_
