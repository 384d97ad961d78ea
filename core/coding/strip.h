// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// A strip of the channels of a block, or of the components that a transform
// made of them: those that share the lanes of a row. Specified in
// core/FORMAT.md, "ecsq" and "klt".

#ifndef KVCOMPRESS_CODING_STRIP_H_
#define KVCOMPRESS_CODING_STRIP_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/types/span.h"
#include "entropy/rans.h"
#include "entropy/tables.h"
#include "quantization/steps.h"

namespace kvcompress::coding {

// How the lanes of a row are coded at tokens of one offset. Lanes without a
// channel have no symbol.
struct LaneCoding {
  LaneCoding();
  void Set(size_t lane, const SplitClass& split);

  uint8_t Table(size_t lane, bool odd) const {
    return odd ? odd_tables[lane] : tables[lane];
  }

  uint8_t tables[kMaxLanes];
  uint8_t odd_tables[kMaxLanes];  // in the odd states of a trellis
  int low_counts[kMaxLanes] = {};
  uint32_t low_lanes = 0;  // bit l: whether lane l has low bits
  // For kernels::CodeRows.
  int32_t base[kMaxLanes] = {};
  int32_t most[kMaxLanes] = {};
};

// How the quanta of a block lie: those of a group of channels after those of
// the group before, each [tokens, channels of the group]. A group is a head or,
// with a transform across heads, those that are transformed together.
struct GroupLayout {
  size_t channels = 0;  // of the block
  size_t group_channels =
      0;  // of all groups but the last, which may have fewer
  size_t tokens = 0;
};

// Not thread safe. What it is made from must outlive it.
class Strip {
 public:
  // Channels from `first` on, up to kMaxLanes of the block's. `classes` has
  // those of all channels; with an offset they are at most `max_class`.
  Strip(const GroupLayout& layout, absl::Span<const uint8_t> classes,
        size_t first, int max_class);

  size_t size() const { return size_; }

  // The coding at tokens of an offset, in quarter octaves: four for each
  // halving of the step. Made when it is first asked for. REQUIRES: kMinOffset
  // <= offset <= kMaxOffset.
  const LaneCoding& At(int offset);

  // Index of a quantum among those of the block.
  size_t Place(size_t lane, size_t token) const {
    return begins_[lane] + token * strides_[lane];
  }
  // Whether the quanta of a token follow each other; then, how far the next
  // token's are.
  bool is_run() const { return is_run_; }
  size_t stride() const { return strides_[0]; }

 private:
  const absl::Span<const uint8_t> classes_;
  const size_t size_;
  const int max_class_;
  size_t begins_[kMaxLanes];
  size_t strides_[kMaxLanes];
  bool is_run_;
  std::array<std::unique_ptr<LaneCoding>, kMaxOffset - kMinOffset + 1>
      codings_;  // by offset
};

}  // namespace kvcompress::coding

#endif  // KVCOMPRESS_CODING_STRIP_H_
