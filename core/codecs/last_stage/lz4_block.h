// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Which blocks of LZ4 the format takes: core/FORMAT.md, "LZ4 blocks".
//
// The library takes a match that has no distance, for which its versions return
// different bytes, and is not always strict about the end of a block.

#ifndef KVCOMPRESS_CODECS_LAST_STAGE_LZ4_BLOCK_H_
#define KVCOMPRESS_CODECS_LAST_STAGE_LZ4_BLOCK_H_

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace kvcompress {

// Whether `block` keeps every rule, for content of `size` bytes; else DATA_LOSS
// with the place and the part of the sequence that breaks one. Allocates
// nothing for a block that does. Thread safe.
absl::Status CheckLz4Block(absl::string_view block, size_t size);

}  // namespace kvcompress

#endif  // KVCOMPRESS_CODECS_LAST_STAGE_LZ4_BLOCK_H_
