// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/klt/packed_levels.h"

#include <algorithm>
#include <cstddef>

namespace kvcompress::klt {
namespace {

// In the place of a level that is wide; the others are from -127 to 127.
constexpr int8_t kWide = -128;
constexpr int32_t kMost = 127;
// Levels that are looked at together: compilers make vectors of these loops.
constexpr size_t kAtOnce = 256;

bool IsWide(int32_t level) { return level < -kMost || level > kMost; }

}  // namespace

void PackedLevels::Pack(absl::Span<const int32_t> levels) {
  narrow_.resize(levels.size());
  wide_.clear();
  for (size_t first = 0; first < levels.size(); first += kAtOnce) {
    const int32_t* const from = levels.data() + first;
    int8_t* const to = narrow_.data() + first;
    const size_t count = std::min(kAtOnce, levels.size() - first);
    int32_t largest = 0;
    int32_t least = 0;
    for (size_t i = 0; i < count; ++i) {
      largest = std::max(largest, from[i]);
      least = std::min(least, from[i]);
      to[i] = static_cast<int8_t>(from[i]);
    }
    if (!IsWide(largest) && !IsWide(least)) continue;
    for (size_t i = 0; i < count; ++i) {
      if (!IsWide(from[i])) continue;
      to[i] = kWide;
      wide_.push_back(from[i]);
    }
  }
}

void PackedLevels::Unpack(int32_t* levels) const {
  std::copy(narrow_.begin(), narrow_.end(), levels);
  auto wide = wide_.begin();
  for (size_t i = 0; wide != wide_.end(); ++i) {
    if (narrow_[i] == kWide) levels[i] = *wide++;
  }
}

}  // namespace kvcompress::klt
