// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Element types of the safetensors format, and exact conversion of the three
// that are compressed. All functions are pure and thread safe.

#ifndef KVCOMPRESS_DTYPE_H_
#define KVCOMPRESS_DTYPE_H_

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

namespace kvcompress {

// Every byte-sized type of the safetensors format, so that a file that holds
// some other tensor gets a precise error.
enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kBool,
  kU8,
  kI8,
  kF8E4M3,
  kF8E5M2,
  kI16,
  kU16,
  kI32,
  kU32,
  kF64,
  kI64,
  kU64,
};

// Name in a safetensors header, such as "BF16".
absl::string_view DTypeName(DType dtype);
std::optional<DType> DTypeFromName(absl::string_view name);

// Bytes of one element.
uint64_t DTypeSize(DType dtype);

// Whether tensors of this type can be compressed: F32, F16, BF16.
inline bool IsCompressible(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

// IEEE 754 binary16 to binary32, exact. A NaN keeps its payload and is quiet
// afterwards, as it is when a processor converts it.
float HalfToFloat(uint16_t bits);
// Nearest even; beyond the range gives infinity, NaN stays NaN.
uint16_t FloatToHalf(float value);

// bfloat16 to binary32, exact.
float BFloat16ToFloat(uint16_t bits);
// Nearest even; beyond the range gives infinity, NaN stays NaN.
uint16_t FloatToBFloat16(float value);

}  // namespace kvcompress

#endif  // KVCOMPRESS_DTYPE_H_
