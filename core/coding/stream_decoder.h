// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The decoding end of ecsq as a stream; it holds one block.

#ifndef KVCOMPRESS_CODING_STREAM_DECODER_H_
#define KVCOMPRESS_CODING_STREAM_DECODER_H_

#include <cstdint>
#include <memory>

#include "kvcompress/codec.h"
#include "kvcompress/tensor.h"

namespace kvcompress::coding {

// REQUIRES: the spec has `elements` elements of a compressible type.
std::unique_ptr<TensorDecoder> NewStreamDecoder(const TensorSpec& spec,
                                                uint64_t elements);
// What it takes. REQUIRES: the same.
DecoderBounds BoundsOfStreamDecoder(const TensorSpec& spec, uint64_t elements);

}  // namespace kvcompress::coding

#endif  // KVCOMPRESS_CODING_STREAM_DECODER_H_
