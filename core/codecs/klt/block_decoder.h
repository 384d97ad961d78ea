// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Decodes the blocks of kModeKlt: quanta of principal components across heads,
// whose bases the blocks carry. Specified in core/FORMAT.md, "klt".

#ifndef KVCOMPRESS_CODECS_KLT_BLOCK_DECODER_H_
#define KVCOMPRESS_CODECS_KLT_BLOCK_DECODER_H_

#include <cstdint>
#include <memory>

#include "coding/stream_decoder.h"
#include "kvcompress/codec.h"
#include "kvcompress/tensor.h"

namespace kvcompress::klt {

// The modes of klt: this one, and that of ecsq; null for others. It holds the
// output of a part of the heads until all their tokens are there.
std::unique_ptr<coding::BlockDecoder> NewKltDecoder(uint8_t mode,
                                                    const TensorSpec& spec);

// What a stream of any of these modes takes.
DecoderBounds BoundsOfKltDecoder(const TensorSpec& spec, uint64_t elements);

}  // namespace kvcompress::klt

#endif  // KVCOMPRESS_CODECS_KLT_BLOCK_DECODER_H_
