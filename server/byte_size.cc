// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "byte_size.h"

#include <limits>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"

namespace kvcompress {

std::optional<uint64_t> ParseByteSize(absl::string_view text) {
  constexpr std::pair<absl::string_view, int> kUnits[] = {
      {"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}};
  int shift = 0;
  for (const auto& [unit, bits] : kUnits) {
    if (absl::ConsumeSuffix(&text, unit)) {
      shift = bits;
      break;
    }
  }
  uint64_t value = 0;
  if (!absl::SimpleAtoi(text, &value) ||
      value > std::numeric_limits<uint64_t>::max() >> shift) {
    return std::nullopt;
  }
  return value << shift;
}

}  // namespace kvcompress
