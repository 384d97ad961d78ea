// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The byte compressors: LZ4 blocks and Zstandard frames, by their own
// libraries.

#ifndef KVCOMPRESS_CODECS_LAST_STAGE_COMPRESSOR_H_
#define KVCOMPRESS_CODECS_LAST_STAGE_COMPRESSOR_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace kvcompress {

// Stateless and thread safe. For content of at most kMaxZstdContent bytes.
struct ByteCompressor {
  const char* name;

  // Compresses `input` into less than its own size; false when that fails.
  bool (*compress)(absl::string_view input, std::string* output);

  // Decompresses into exactly `size` bytes at `output`. DATA_LOSS, with the
  // place in `input`, when that is not exactly one compressed piece of that
  // many, by the rules of core/FORMAT.md: these are checked before the library
  // sees it.
  absl::Status (*decompress)(absl::string_view input, size_t size,
                             char* output);
};

const ByteCompressor& Lz4();
const ByteCompressor& Zstd();

}  // namespace kvcompress

#endif  // KVCOMPRESS_CODECS_LAST_STAGE_COMPRESSOR_H_
