// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// A strip of the channels of a block: those that share the lanes of a row.
// Specified in core/FORMAT.md, "ecsq".

#ifndef KVCOMPRESS_CODING_STRIP_H_
#define KVCOMPRESS_CODING_STRIP_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "coding/geometry.h"
#include "entropy/rans.h"
#include "entropy/tables.h"

namespace kvcompress::coding {

// How the lanes of a row are coded.
struct LaneCoding {
  // With no symbol in any lane.
  LaneCoding();
  void Set(size_t lane, const SplitClass& split);

  uint8_t tables[kMaxLanes];
  int low_counts[kMaxLanes] = {};
  uint32_t low_lanes = 0;  // bit l: whether lane l has low bits
  // For kernels::CodeRows.
  int32_t base[kMaxLanes] = {};
  int32_t most[kMaxLanes] = {};
};

struct Strip {
  // Channels from `first` on, up to kMaxLanes of the block's, at tokens whose
  // step is halved `shift` times. `classes` has those of all channels.
  Strip(const Geometry& geometry, const Block& block,
        absl::Span<const uint8_t> classes, size_t first, int shift);

  size_t size;
  LaneCoding coding;
  // Of each lane's channel at the first token, in the block.
  size_t position[kMaxLanes];
};

}  // namespace kvcompress::coding

#endif  // KVCOMPRESS_CODING_STRIP_H_
