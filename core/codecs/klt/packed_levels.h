// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The levels of a group of a block, from when they are chosen until they are
// written. A block is written only when all of them have been quantized and a
// search for the step has ended, so that there are as many levels as values.
// Nearly all fit a byte; those that do not take four more, and where they are
// many each level has two bytes instead.

#ifndef KVCOMPRESS_CODECS_KLT_PACKED_LEVELS_H_
#define KVCOMPRESS_CODECS_KLT_PACKED_LEVELS_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace kvcompress::klt {

// Not thread safe.
class PackedLevels {
 public:
  // Keeps these levels, of any size, instead of others.
  void Pack(absl::Span<const int32_t> levels);
  // Writes them to `levels`, which has space for all.
  void Unpack(int32_t* levels) const;

 private:
  // All of them, in one of these two; those that do not fit are wide.
  std::vector<int8_t> bytes_;
  std::vector<int16_t> words_;
  std::vector<int32_t> wide_;  // in order
};

}  // namespace kvcompress::klt

#endif  // KVCOMPRESS_CODECS_KLT_PACKED_LEVELS_H_
