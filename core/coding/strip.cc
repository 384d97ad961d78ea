// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "coding/strip.h"

#include <algorithm>
#include <iterator>

#include "quantization/trellis.h"

namespace kvcompress::coding {

LaneCoding::LaneCoding() {
  std::fill(std::begin(tables), std::end(tables), kNoTable);
  std::fill(std::begin(odd_tables), std::end(odd_tables), kNoTable);
}

void LaneCoding::Set(size_t lane, const SplitClass& split) {
  const auto table = static_cast<size_t>(split.table);
  tables[lane] = static_cast<uint8_t>(table);
  odd_tables[lane] = static_cast<uint8_t>(TableOf(split, true));
  low_counts[lane] = split.low_bits;
  if (split.low_bits > 0) low_lanes |= uint32_t{1} << lane;
  base[lane] = CodedSymbol(table, 0);
  most[lane] = GetTables().largest[table];
}

Strip::Strip(const GroupLayout& layout, absl::Span<const uint8_t> classes,
             size_t first, int max_class)
    : classes_(classes.subspan(first, kMaxLanes)),
      size_(classes_.size()),
      max_class_(max_class) {
  for (size_t lane = 0; lane < size_; ++lane) {
    const size_t in_group = (first + lane) % layout.group_channels;
    const size_t group_first = first + lane - in_group;
    strides_[lane] =
        std::min(layout.group_channels, layout.channels - group_first);
    begins_[lane] = group_first * layout.tokens + in_group;
  }
  is_run_ = begins_[size_ - 1] - begins_[0] == size_ - 1 &&
            strides_[size_ - 1] == strides_[0];
}

const LaneCoding& Strip::At(int offset) {
  std::unique_ptr<LaneCoding>& coding =
      codings_[static_cast<size_t>(offset - kMinOffset)];
  if (coding == nullptr) {
    coding = std::make_unique<LaneCoding>();
    for (size_t lane = 0; lane < size_; ++lane) {
      const int klass = std::clamp(classes_[lane] + offset, 0, max_class_);
      coding->Set(lane, SplitClass(klass));
    }
  }
  return *coding;
}

}  // namespace kvcompress::coding
