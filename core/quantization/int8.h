// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// 8-bit integers with a bfloat16 scale: the sinks of a block, and a whole
// tensor in groups of 64. The latter takes any finite tensor and sets the size
// that ecsq and klt never exceed. Specified in core/FORMAT.md, "ecsq".

#ifndef KVCOMPRESS_QUANTIZATION_INT8_H_
#define KVCOMPRESS_QUANTIZATION_INT8_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kvcompress/dtype.h"

namespace kvcompress::coding {

// The scale of a sink or of a group.
struct Int8Scale {
  // The least bfloat16 not below max |value| / 127.
  static uint16_t For(absl::Span<const float> values);
  static bool Valid(uint16_t bits) { return bits < 0x7f80; }
  // Rounded half away from zero, within -127 .. 127.
  static int8_t Quantize(float value, uint16_t bits);
  static float Dequantize(int8_t code, uint16_t bits);
};

inline constexpr size_t kInt8Group = 64;
inline constexpr size_t kInt8BlockElements = 4096;

constexpr uint64_t Int8Size(uint64_t elements) {
  return elements + 2 * (elements / kInt8Group + (elements % kInt8Group != 0));
}

// Appends the groups of `values` to `*payload` and writes what they decode to.
void EncodeInt8(DType dtype, absl::Span<const float> values,
                std::string* payload, uint8_t* decoded);

// Decodes Int8Size(elements) bytes, at most kInt8BlockElements elements.
// DATA_LOSS where a scale or a code breaks a rule of the format.
absl::Status DecodeInt8(DType dtype, absl::Span<const uint8_t> payload,
                        size_t elements, uint8_t* decoded);

}  // namespace kvcompress::coding

#endif  // KVCOMPRESS_QUANTIZATION_INT8_H_
