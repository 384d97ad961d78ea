// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Element types of the safetensors format, and conversion of those whose
// elements codecs take for numbers. All functions are pure and thread safe.

#ifndef KVCOMPRESS_DTYPE_H_
#define KVCOMPRESS_DTYPE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace kvcompress {

// Every type of the safetensors format whose elements are whole bytes. Those
// that codecs take for numbers come first, in the order of tables of kernels.
enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kF8E4M3,  // of the OCP: no infinity, a NaN of each sign, up to 448
  kF8E5M2,  // of the OCP: as binary16, up to 57,344
  kF64,
  kBool,
  kU8,
  kI8,
  kI16,
  kU16,
  kI32,
  kU32,
  kI64,
  kU64,
  kF8E8M0,
  kF8E4M3Fnuz,
  kF8E5M2Fnuz,
  kC64,
};

// All of them, in this order.
absl::Span<const DType> AllDTypes();

// Those that codecs take for numbers. The others are kept as they are.
absl::Span<const DType> NumberDTypes();
constexpr bool IsNumber(DType dtype) { return dtype <= DType::kF64; }

// Name in a safetensors header, such as "BF16".
absl::string_view DTypeName(DType dtype);
std::optional<DType> DTypeFromName(absl::string_view name);

// Bytes of one element.
uint64_t DTypeSize(DType dtype);

// IEEE 754 binary16 to binary32, exact. A NaN keeps its payload and is quiet
// afterwards, as it is when a processor converts it.
float HalfToFloat(uint16_t bits);
// Nearest even; beyond the range returns infinity, NaN stays NaN.
uint16_t FloatToHalf(float value);

// bfloat16 to binary32, exact.
float BFloat16ToFloat(uint16_t bits);
// Nearest even; beyond the range returns infinity, NaN stays NaN.
uint16_t FloatToBFloat16(float value);

// F8_E4M3 and F8_E5M2 to binary32, exact.
float F8E4M3ToFloat(uint8_t bits);
float F8E5M2ToFloat(uint8_t bits);
// Nearest even; beyond the range, infinity too, returns the largest finite
// value of its sign. NaN stays NaN.
uint8_t FloatToF8E4M3(float value);
uint8_t FloatToF8E5M2(float value);

// Appends the element that is nearest to a value, as the functions above have
// it, little-endian. REQUIRES: IsNumber(dtype).
void AppendElement(DType dtype, float value, std::string* bytes);

}  // namespace kvcompress

#endif  // KVCOMPRESS_DTYPE_H_
