// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "quantization/int8.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "kernels/elements.h"

namespace kvcompress::coding {

uint16_t Int8Scale::For(absl::Span<const float> values) {
  float largest = 0;
  for (const float value : values) {
    largest = std::max(largest, std::abs(value));
  }
  const uint32_t bits = std::bit_cast<uint32_t>(largest / 127.0f);
  return static_cast<uint16_t>((bits + 0xffff) >> 16);
}

int8_t Int8Scale::Quantize(float value, uint16_t bits) {
  if (bits == 0) return 0;
  const float code = std::round(value / BFloat16ToFloat(bits));
  return static_cast<int8_t>(std::clamp(code, -127.0f, 127.0f));
}

float Int8Scale::Dequantize(int8_t code, uint16_t bits) {
  return static_cast<float>(code) * BFloat16ToFloat(bits);
}

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

absl::Status DecodeInt8(DType dtype, absl::Span<const uint8_t> payload,
                        size_t elements, uint8_t* decoded) {
  for (size_t first = 0; first < elements; first += kInt8Group) {
    const size_t size = std::min(kInt8Group, elements - first);
    uint16_t scale;
    std::memcpy(&scale, payload.data(), sizeof(scale));
    if (!Int8Scale::Valid(scale)) {
      return absl::DataLossError(absl::StrCat(
          "the scale of the group of element ", first,
          " of a run of 8-bit integers is negative or not finite"));
    }
    float restored[kInt8Group];
    for (size_t i = 0; i < size; ++i) {
      const int8_t code = static_cast<int8_t>(payload[sizeof(scale) + i]);
      if (code == -128) {
        return absl::DataLossError(
            absl::StrCat("the code of element ", first + i,
                         " of a run of 8-bit integers is -128"));
      }
      restored[i] = Int8Scale::Dequantize(code, scale);
    }
    StoreElements(dtype, absl::MakeConstSpan(restored, size),
                  decoded + first * DTypeSize(dtype));
    payload.remove_prefix(sizeof(scale) + size);
  }
  return absl::OkStatus();
}

}  // namespace kvcompress::coding
