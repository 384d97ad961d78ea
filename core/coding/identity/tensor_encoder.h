// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Encodes a whole tensor with ecsq: chooses rotation and step, and falls back
// to 8-bit integers where they are smaller.

#ifndef KVCOMPRESS_CODING_IDENTITY_TENSOR_ENCODER_H_
#define KVCOMPRESS_CODING_IDENTITY_TENSOR_ENCODER_H_

#include <cstdint>

#include "coding/step_options.h"
#include "kvcompress/codec.h"
#include "kvcompress/tensor.h"
#include "tensor/whole_tensor.h"

namespace kvcompress::coding {

// The largest payload of so many elements.
uint64_t MaxPayloadSize(uint64_t elements);

// Encodes a tensor. In addition to it and what was asked for, this holds up to
// two payloads, what a block takes (EncodeHints::buffers) and a few numbers of
// each token: the values are made from the source anew each time that they are
// looked at, and decoded ones are measured block by block.
EncodedTensor EncodeTensor(const TensorSpec& spec, const StepOptions& preset,
                           const EncodeHints& hints, const WholeTensor& tensor);

// Whether that payload may have at most so many bytes: false when it would
// certainly have more. Takes less time, as nothing is decoded.
bool MayFit(const TensorSpec& spec, const StepOptions& preset,
            const EncodeHints& hints, const WholeTensor& tensor, uint64_t most);

}  // namespace kvcompress::coding

#endif  // KVCOMPRESS_CODING_IDENTITY_TENSOR_ENCODER_H_
