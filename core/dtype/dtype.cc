// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "kvcompress/dtype.h"

namespace kvcompress {
namespace {

struct Entry {
  DType dtype;
  absl::string_view name;
  uint64_t size;
};

constexpr Entry kTable[] = {
    {DType::kF32, "F32", 4},        {DType::kF16, "F16", 2},
    {DType::kBF16, "BF16", 2},      {DType::kBool, "BOOL", 1},
    {DType::kU8, "U8", 1},          {DType::kI8, "I8", 1},
    {DType::kF8E4M3, "F8_E4M3", 1}, {DType::kF8E5M2, "F8_E5M2", 1},
    {DType::kI16, "I16", 2},        {DType::kU16, "U16", 2},
    {DType::kI32, "I32", 4},        {DType::kU32, "U32", 4},
    {DType::kF64, "F64", 8},        {DType::kI64, "I64", 8},
    {DType::kU64, "U64", 8},
};

const Entry& Lookup(DType dtype) { return kTable[static_cast<int>(dtype)]; }

constexpr bool TableMatchesEnum() {
  int i = 0;
  for (const Entry& entry : kTable) {
    if (static_cast<int>(entry.dtype) != i++) return false;
  }
  return true;
}
static_assert(TableMatchesEnum());

}  // namespace

absl::string_view DTypeName(DType dtype) { return Lookup(dtype).name; }

uint64_t DTypeSize(DType dtype) { return Lookup(dtype).size; }

std::optional<DType> DTypeFromName(absl::string_view name) {
  for (const Entry& entry : kTable) {
    if (entry.name == name) return entry.dtype;
  }
  return std::nullopt;
}

}  // namespace kvcompress
