// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "kvcompress/dtype.h"

#include <array>
#include <bit>
#include <cstddef>
#include <iterator>

namespace kvcompress {
namespace {

struct Entry {
  DType dtype;
  absl::string_view name;
  uint64_t size;
};

constexpr Entry kTable[] = {
    {DType::kF32, "F32", 4},
    {DType::kF16, "F16", 2},
    {DType::kBF16, "BF16", 2},
    {DType::kF8E4M3, "F8_E4M3", 1},
    {DType::kF8E5M2, "F8_E5M2", 1},
    {DType::kF64, "F64", 8},
    {DType::kBool, "BOOL", 1},
    {DType::kU8, "U8", 1},
    {DType::kI8, "I8", 1},
    {DType::kI16, "I16", 2},
    {DType::kU16, "U16", 2},
    {DType::kI32, "I32", 4},
    {DType::kU32, "U32", 4},
    {DType::kI64, "I64", 8},
    {DType::kU64, "U64", 8},
    {DType::kF8E8M0, "F8_E8M0", 1},
    {DType::kF8E4M3Fnuz, "F8_E4M3FNUZ", 1},
    {DType::kF8E5M2Fnuz, "F8_E5M2FNUZ", 1},
    {DType::kC64, "C64", 8},
};
constexpr size_t kCount = std::size(kTable);

constexpr std::array<DType, kCount> kAll = [] {
  std::array<DType, kCount> all{};
  for (size_t i = 0; i < kCount; ++i) all[i] = kTable[i].dtype;
  return all;
}();

constexpr size_t kNumbers = [] {
  size_t count = 0;
  for (const Entry& entry : kTable) count += IsNumber(entry.dtype) ? 1 : 0;
  return count;
}();

const Entry& Lookup(DType dtype) { return kTable[static_cast<int>(dtype)]; }

constexpr bool TableMatchesEnum() {
  int i = 0;
  for (const Entry& entry : kTable) {
    if (static_cast<int>(entry.dtype) != i++) return false;
  }
  return true;
}
static_assert(TableMatchesEnum());

uint64_t BitsOf(DType dtype, float value) {
  switch (dtype) {
    case DType::kF16:
      return FloatToHalf(value);
    case DType::kBF16:
      return FloatToBFloat16(value);
    case DType::kF8E4M3:
      return FloatToF8E4M3(value);
    case DType::kF8E5M2:
      return FloatToF8E5M2(value);
    case DType::kF64:
      return std::bit_cast<uint64_t>(static_cast<double>(value));
    default:
      return std::bit_cast<uint32_t>(value);
  }
}

}  // namespace

absl::Span<const DType> AllDTypes() { return kAll; }

absl::Span<const DType> NumberDTypes() {
  return absl::MakeConstSpan(kAll).first(kNumbers);
}

absl::string_view DTypeName(DType dtype) { return Lookup(dtype).name; }

uint64_t DTypeSize(DType dtype) { return Lookup(dtype).size; }

std::optional<DType> DTypeFromName(absl::string_view name) {
  for (const Entry& entry : kTable) {
    if (entry.name == name) return entry.dtype;
  }
  return std::nullopt;
}

void AppendElement(DType dtype, float value, std::string* bytes) {
  uint64_t bits = BitsOf(dtype, value);
  for (uint64_t i = DTypeSize(dtype); i-- > 0; bits >>= 8) {
    bytes->push_back(static_cast<char>(bits & 0xff));
  }
}

}  // namespace kvcompress
