// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// A codec whose payload then goes through a general-purpose compressor, chunk
// by chunk, where that makes it smaller: `int4+zstd`. Specified in
// core/FORMAT.md, "Byte compressors".

#ifndef KVCOMPRESS_CODECS_LAST_STAGE_LAST_STAGE_H_
#define KVCOMPRESS_CODECS_LAST_STAGE_LAST_STAGE_H_

#include <functional>
#include <memory>

#include "codecs/last_stage/compressor.h"
#include "kvcompress/codec.h"

namespace kvcompress {

// Returns the codec that applies the byte compressor after another.
using StageAfter = std::function<const Codec*(const Codec& inner)>;

// `inner` and `compressor` outlive the result. `stage_after` serves codecs that
// choose among others.
std::unique_ptr<Codec> NewLastStage(const Codec& inner,
                                    const ByteCompressor& compressor,
                                    StageAfter stage_after);

}  // namespace kvcompress

#endif  // KVCOMPRESS_CODECS_LAST_STAGE_LAST_STAGE_H_
