// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// What a block of klt holds beyond coding/format.h. Specified in
// core/FORMAT.md, "klt".

#ifndef KVCOMPRESS_CODECS_KLT_FORMAT_H_
#define KVCOMPRESS_CODECS_KLT_FORMAT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "coding/block_content.h"
#include "entropy/tables.h"

namespace kvcompress::klt {

inline constexpr size_t kMaxVectors = 128;  // of a group
// What the differences of a group's reflector classes begin from.
inline constexpr int kFirstReflectorClass = 15;
// In the place of a number of reflectors: the group's basis is that of the
// block before it.
inline constexpr uint8_t kSameBasis = 255;

struct BlockContent : coding::BlockContent {
  std::vector<int8_t> offsets;  // of each token
};

// The largest class of a component at any offset.
inline constexpr int kMaxClass = coding::kClasses - 1;

// Class of a component at a token of that offset.
inline int ClassAt(uint8_t klass, int offset) {
  return std::clamp(klass + offset, 0, kMaxClass);
}

}  // namespace kvcompress::klt

#endif  // KVCOMPRESS_CODECS_KLT_FORMAT_H_
