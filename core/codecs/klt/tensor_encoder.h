// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Encodes a whole tensor with klt, or with ecsq where that is smaller.

#ifndef KVCOMPRESS_CODECS_KLT_TENSOR_ENCODER_H_
#define KVCOMPRESS_CODECS_KLT_TENSOR_ENCODER_H_

#include "absl/strings/string_view.h"
#include "codecs/ecsq/tensor_encoder.h"
#include "codecs/klt/preset.h"
#include "kvcompress/codec.h"
#include "kvcompress/tensor.h"

namespace kvcompress::klt {

// Encodes the bytes of a tensor. REQUIRES: all elements are finite.
EncodedTensor EncodeTensor(const TensorSpec& spec, const Preset& preset,
                           const EncodeHints& hints, absl::string_view bytes);

}  // namespace kvcompress::klt

#endif  // KVCOMPRESS_CODECS_KLT_TENSOR_ENCODER_H_
