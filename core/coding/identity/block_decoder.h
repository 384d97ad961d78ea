// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Decodes the blocks of kModeIdentity: quanta of the channels themselves.
// Specified in core/FORMAT.md, "ecsq".

#ifndef KVCOMPRESS_CODING_IDENTITY_BLOCK_DECODER_H_
#define KVCOMPRESS_CODING_IDENTITY_BLOCK_DECODER_H_

#include <cstdint>
#include <memory>

#include "coding/stream_decoder.h"
#include "kvcompress/codec.h"
#include "kvcompress/tensor.h"

namespace kvcompress::coding {

// Null for other modes. It works block by block and holds what one takes.
std::unique_ptr<BlockDecoder> NewIdentityDecoder(uint8_t mode,
                                                 const TensorSpec& spec);

// What a stream of these modes takes: this one, and 8-bit integers.
DecoderBounds BoundsOfIdentityDecoder(const TensorSpec& spec,
                                      uint64_t elements);

}  // namespace kvcompress::coding

#endif  // KVCOMPRESS_CODING_IDENTITY_BLOCK_DECODER_H_
