// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The norm of a token: the root mean square of its channels, as the upper bits
// of a binary32. Specified in core/FORMAT.md, "ecsq".

#ifndef KVCOMPRESS_QUANTIZATION_NORMS_H_
#define KVCOMPRESS_QUANTIZATION_NORMS_H_

#include <bit>
#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"

namespace kvcompress::coding {

inline constexpr uint16_t kNormEnd = 0x7f8;  // codes are below it

// The code of a token's norm, to 3 bits after the point; 0 below 2^-126.
uint16_t NormCode(absl::Span<const float> values);
// The same of so many values with that sum of squares.
uint16_t NormCode(double squares, size_t count);

inline float NormOf(uint16_t code) {
  return std::bit_cast<float>(static_cast<uint32_t>(code) << 20);
}

}  // namespace kvcompress::coding

#endif  // KVCOMPRESS_QUANTIZATION_NORMS_H_
