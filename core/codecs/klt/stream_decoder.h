// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The decoding end of klt as a stream.

#ifndef KVCOMPRESS_CODECS_KLT_STREAM_DECODER_H_
#define KVCOMPRESS_CODECS_KLT_STREAM_DECODER_H_

#include <cstdint>
#include <memory>

#include "kvcompress/codec.h"
#include "kvcompress/tensor.h"

namespace kvcompress::klt {

// Holds the output of a part of the heads until all their tokens are there, and
// then until all of it was taken. REQUIRES: the spec has `elements` elements of
// a compressible type.
std::unique_ptr<TensorDecoder> NewStreamDecoder(const TensorSpec& spec,
                                                uint64_t elements);
// What it takes. REQUIRES: the same.
DecoderBounds BoundsOfStreamDecoder(const TensorSpec& spec, uint64_t elements);

}  // namespace kvcompress::klt

#endif  // KVCOMPRESS_CODECS_KLT_STREAM_DECODER_H_
