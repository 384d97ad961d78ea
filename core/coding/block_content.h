// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// What a block holds next to its quanta, whatever transform it has.

#ifndef KVCOMPRESS_CODING_BLOCK_CONTENT_H_
#define KVCOMPRESS_CODING_BLOCK_CONTENT_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kvcompress/dtype.h"

namespace kvcompress::coding {

struct BlockContent {
  std::vector<uint8_t> classes;  // of each channel, or component
  std::vector<int32_t> means;    // of each channel, in eighths of a step
  std::vector<uint16_t> norms;   // of each token of each head, or empty
  // For each head and sink that is 8-bit integers, in this order: the scale,
  // and a code for each channel.
  std::vector<uint16_t> sink_scales;
  std::vector<int8_t> sink_codes;

  // Appends the sinks of a block: the first `sinks` tokens of heads of
  // [tokens, channels], `head_stride` elements apart at `source`.
  void EncodeSinks(DType dtype, const uint8_t* source, size_t heads,
                   size_t head_stride, size_t sinks, size_t channels);
  // The values of the channels of a sink.
  void DecodeSink(size_t sink, size_t channels, float* values) const;
};

}  // namespace kvcompress::coding

#endif  // KVCOMPRESS_CODING_BLOCK_CONTENT_H_
