// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Encodes a whole tensor with ecsq: chooses rotation and step, and falls back
// to 8-bit integers where they are smaller.

#ifndef KVCOMPRESS_CODECS_ECSQ_TENSOR_ENCODER_H_
#define KVCOMPRESS_CODECS_ECSQ_TENSOR_ENCODER_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "codecs/ecsq/preset.h"
#include "codecs/whole_tensor.h"
#include "kvcompress/codec.h"
#include "kvcompress/tensor.h"

namespace kvcompress::ecsq {

// The largest payload of so many elements.
uint64_t MaxPayloadSize(uint64_t elements);

// Makes values zero that are better patched than coded: those beyond what a
// cache usually holds, if they are rare. `largest` is the largest magnitude.
void HideOutliers(float largest, absl::Span<float> values);

// Encodes the bytes of a tensor. REQUIRES: all elements are finite.
EncodedTensor EncodeTensor(const TensorSpec& spec, const Preset& preset,
                           const EncodeHints& hints, absl::string_view bytes);

}  // namespace kvcompress::ecsq

#endif  // KVCOMPRESS_CODECS_ECSQ_TENSOR_ENCODER_H_
