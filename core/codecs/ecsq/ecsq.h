// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// `ecsq:PRESET`: entropy-coded scalar quantization of keys and values. Keys
// lose their rotary embedding and channel means, values their tokens' norms;
// one quantizer step serves the whole tensor, and rANS under fixed tables codes
// the rest.
// Specified in core/FORMAT.md, section 5.
//
// Its parts are those of the coding toolkit, without a transform. Begin to read
// at coding/block_writer.h, which shows a block; from there
//
//   coding/identity/tensor_encoder.h   chooses rotation and step
//   coding/identity/block_encoder.h    quantizes and codes a block
//   coding/stream_decoder.h            cuts a payload into blocks
//   coding/identity/block_decoder.h    decodes one
//
// The encoder holds the tensor and returns everything at Finish. The decoder
// works block by block, each at most 2^18 elements, and returns them in the
// order of the tensor: it holds one block and the elements of one.

#ifndef KVCOMPRESS_CODECS_ECSQ_ECSQ_H_
#define KVCOMPRESS_CODECS_ECSQ_ECSQ_H_

#include "kvcompress/codec.h"

namespace kvcompress {

const Codec& EcsqCodec();

}  // namespace kvcompress

#endif  // KVCOMPRESS_CODECS_ECSQ_ECSQ_H_
