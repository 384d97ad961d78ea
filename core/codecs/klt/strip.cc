// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/klt/strip.h"

#include "codecs/klt/format.h"
#include "entropy/tables.h"
#include "quantization/trellis.h"

namespace kvcompress::klt {

Strip::Strip(const Geometry& geometry, const Block& block,
             const BlockContent& content, size_t first)
    : classes_(&content.classes[first]),
      count_(std::min(coding::kMaxLanes, geometry.Channels(block) - first)),
      tables_(kMaxOffset - kMinOffset + 1) {
  for (size_t lane = 0; lane < count_; ++lane) {
    levels_[lane] = geometry.LevelsOf(block, first + lane);
  }
  const Geometry::Levels& last = levels_[count_ - 1];
  is_run_ = last.begin - levels_[0].begin == count_ - 1 &&
            last.stride == levels_[0].stride;
}

void Strip::Make(int offset, LaneTables* tables) const {
  for (size_t lane = 0; lane < count_; ++lane) {
    const coding::SplitClass split(ClassAt(classes_[lane], offset));
    tables->Set(lane, split);
    tables->odd_tables[lane] =
        static_cast<uint8_t>(coding::TableOf(split, true));
  }
}

}  // namespace kvcompress::klt
