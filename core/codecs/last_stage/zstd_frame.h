// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Which frames of Zstandard the format takes: core/FORMAT.md, "Zstandard
// frames".
//
// Versions of the library differ in what they refuse, and older ones read some
// broken streams beyond their ends. What is a payload must not depend on the
// version that is installed.

#ifndef KVCOMPRESS_CODECS_LAST_STAGE_ZSTD_FRAME_H_
#define KVCOMPRESS_CODECS_LAST_STAGE_ZSTD_FRAME_H_

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace kvcompress {

// Content that a frame of the format may have, in bytes.
inline constexpr size_t kMaxZstdContent = size_t{128} << 10;

// Whether `frame` keeps every rule, for content of `size` bytes, at most
// kMaxZstdContent: what is left to a decoder is to copy bytes. Else DATA_LOSS
// with the block, its offset and the field that breaks one. Takes about as long
// as decoding; allocates nothing for a frame that does. Thread safe.
absl::Status CheckZstdFrame(absl::string_view frame, size_t size);

}  // namespace kvcompress

#endif  // KVCOMPRESS_CODECS_LAST_STAGE_ZSTD_FRAME_H_
