// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/klt/packed_levels.h"

#include <algorithm>
#include <cstddef>
#include <limits>

namespace kvcompress::klt {
namespace {

// Levels that are looked at together: compilers make vectors of these loops.
constexpr size_t kAtOnce = 256;
// Where more than one level in so many is wide, all get another byte.
constexpr size_t kRare = 4;

// Stands instead of a level that is wide.
template <typename Narrow>
constexpr Narrow kWide = std::numeric_limits<Narrow>::min();

template <typename Narrow>
bool IsWide(int32_t level) {
  constexpr int32_t kMax = std::numeric_limits<Narrow>::max();
  return level < -kMax || level > kMax;
}

template <typename Narrow>
void PackAs(absl::Span<const int32_t> levels, std::vector<Narrow>* narrow,
            std::vector<int32_t>* wide) {
  narrow->resize(levels.size());
  wide->clear();
  for (size_t first = 0; first < levels.size(); first += kAtOnce) {
    const int32_t* const from = levels.data() + first;
    Narrow* const to = narrow->data() + first;
    const size_t count = std::min(kAtOnce, levels.size() - first);
    int32_t largest = 0;
    int32_t least = 0;
    for (size_t i = 0; i < count; ++i) {
      largest = std::max(largest, from[i]);
      least = std::min(least, from[i]);
      to[i] = static_cast<Narrow>(from[i]);
    }
    if (!IsWide<Narrow>(largest) && !IsWide<Narrow>(least)) continue;
    for (size_t i = 0; i < count; ++i) {
      if (!IsWide<Narrow>(from[i])) continue;
      to[i] = kWide<Narrow>;
      wide->push_back(from[i]);
    }
  }
}

template <typename Narrow>
void UnpackFrom(const std::vector<Narrow>& narrow,
                const std::vector<int32_t>& wide, int32_t* levels) {
  std::copy(narrow.begin(), narrow.end(), levels);
  auto next = wide.begin();
  for (size_t i = 0; next != wide.end(); ++i) {
    if (narrow[i] == kWide<Narrow>) levels[i] = *next++;
  }
}

}  // namespace

void PackedLevels::Pack(absl::Span<const int32_t> levels) {
  words_ = {};
  PackAs(levels, &bytes_, &wide_);
  if (wide_.size() <= levels.size() / kRare) return;
  bytes_ = {};
  wide_ = {};
  PackAs(levels, &words_, &wide_);
}

void PackedLevels::Unpack(int32_t* levels) const {
  if (words_.empty()) {
    UnpackFrom(bytes_, wide_, levels);
  } else {
    UnpackFrom(words_, wide_, levels);
  }
}

}  // namespace kvcompress::klt
