// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The two ends of ecsq as streams; see ecsq.h for what each of them holds.

#ifndef KVCOMPRESS_CODECS_ECSQ_STREAM_H_
#define KVCOMPRESS_CODECS_ECSQ_STREAM_H_

#include <cstdint>
#include <memory>

#include "codecs/ecsq/preset.h"
#include "kvcompress/codec.h"
#include "kvcompress/tensor.h"

namespace kvcompress::ecsq {

// REQUIRES for both: the spec has `elements` elements of a compressible type.
std::unique_ptr<TensorEncoder> NewStreamEncoder(const TensorSpec& spec,
                                                uint64_t elements,
                                                const Preset& preset,
                                                const EncodeHints& hints);
std::unique_ptr<TensorDecoder> NewStreamDecoder(const TensorSpec& spec,
                                                uint64_t elements);

}  // namespace kvcompress::ecsq

#endif  // KVCOMPRESS_CODECS_ECSQ_STREAM_H_
