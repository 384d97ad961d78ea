// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Encodes a whole tensor with klt, or with ecsq where that is smaller.

#ifndef KVCOMPRESS_CODECS_KLT_TENSOR_ENCODER_H_
#define KVCOMPRESS_CODECS_KLT_TENSOR_ENCODER_H_

#include "codecs/klt/preset.h"
#include "kvcompress/codec.h"
#include "kvcompress/tensor.h"
#include "tensor/whole_tensor.h"

namespace kvcompress::klt {

// Encodes a tensor.
EncodedTensor EncodeTensor(const TensorSpec& spec, const Preset& preset,
                           const EncodeHints& hints, const WholeTensor& tensor);

}  // namespace kvcompress::klt

#endif  // KVCOMPRESS_CODECS_KLT_TENSOR_ENCODER_H_
