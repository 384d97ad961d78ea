// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// A strip of the components of a block: those that share the lanes of a row.
// Specified in core/FORMAT.md, "klt".

#ifndef KVCOMPRESS_CODECS_KLT_STRIP_H_
#define KVCOMPRESS_CODECS_KLT_STRIP_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "codecs/klt/format.h"
#include "codecs/klt/geometry.h"
#include "codecs/klt/reconstruct.h"
#include "coding/strip.h"
#include "entropy/rans.h"

namespace kvcompress::klt {

// How lanes are coded at tokens of one offset: in the even states of a trellis,
// and without one, as ecsq does it.
struct LaneTables : coding::LaneCoding {
  uint8_t Table(size_t lane, bool odd) const {
    return odd ? odd_tables[lane] : tables[lane];
  }

  uint8_t odd_tables[coding::kMaxLanes];
};

// Not thread safe. What it is made from must outlive it.
class Strip {
 public:
  // Components from `first` on, up to kMaxLanes of the block's.
  Strip(const Geometry& geometry, const Block& block,
        const BlockContent& content, size_t first);

  size_t count() const { return count_; }

  // Made when it is first asked for. REQUIRES: kMinOffset <= offset <=
  // kMaxOffset.
  const LaneTables& At(int offset) {
    std::optional<LaneTables>& at =
        tables_[static_cast<size_t>(offset - kMinOffset)];
    if (!at) Make(offset, &at.emplace());
    return *at;
  }

  // Index of a level among those of the block.
  size_t Place(size_t lane, size_t token) const {
    return levels_[lane].begin + token * levels_[lane].stride;
  }
  // Whether the levels of a token follow each other; then, how far the next
  // token's are.
  bool is_run() const { return is_run_; }
  size_t stride() const { return levels_[0].stride; }

 private:
  void Make(int offset, LaneTables* tables) const;

  const uint8_t* const classes_;
  const size_t count_;
  Geometry::Levels levels_[coding::kMaxLanes];
  bool is_run_;
  std::vector<std::optional<LaneTables>> tables_;  // by offset
};

}  // namespace kvcompress::klt

#endif  // KVCOMPRESS_CODECS_KLT_STRIP_H_
