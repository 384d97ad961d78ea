// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "quantization/int8.h"

#include <algorithm>
#include <cstring>

#include "coding/identity/reconstruct.h"
#include "kernels/elements.h"

namespace kvcompress::coding {

void EncodeInt8(DType dtype, absl::Span<const float> values,
                std::string* payload, uint8_t* decoded) {
  for (size_t first = 0; first < values.size(); first += kInt8Group) {
    const absl::Span<const float> group = values.subspan(first, kInt8Group);
    const uint16_t scale = Int8Scale::For(group);
    payload->append(reinterpret_cast<const char*>(&scale), sizeof(scale));
    float restored[kInt8Group];
    for (size_t i = 0; i < group.size(); ++i) {
      const int8_t code = Int8Scale::Quantize(group[i], scale);
      payload->push_back(static_cast<char>(code));
      restored[i] = Int8Scale::Dequantize(code, scale);
    }
    StoreElements(dtype, absl::MakeConstSpan(restored, group.size()),
                  decoded + first * DTypeSize(dtype));
  }
}

bool DecodeInt8(DType dtype, absl::Span<const uint8_t> payload, size_t elements,
                uint8_t* decoded) {
  for (size_t first = 0; first < elements; first += kInt8Group) {
    const size_t size = std::min(kInt8Group, elements - first);
    uint16_t scale;
    std::memcpy(&scale, payload.data(), sizeof(scale));
    if (!Int8Scale::Valid(scale)) return false;
    float restored[kInt8Group];
    for (size_t i = 0; i < size; ++i) {
      const int8_t code = static_cast<int8_t>(payload[sizeof(scale) + i]);
      if (code == -128) return false;
      restored[i] = Int8Scale::Dequantize(code, scale);
    }
    StoreElements(dtype, absl::MakeConstSpan(restored, size),
                  decoded + first * DTypeSize(dtype));
    payload.remove_prefix(sizeof(scale) + size);
  }
  return true;
}

}  // namespace kvcompress::coding
