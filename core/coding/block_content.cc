// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "coding/block_content.h"

#include "absl/types/span.h"
#include "kernels/elements.h"
#include "quantization/int8.h"

namespace kvcompress::coding {

void BlockContent::EncodeSinks(DType dtype, const uint8_t* source, size_t heads,
                               size_t head_stride, size_t sinks,
                               size_t channels) {
  std::vector<float> token(channels);
  for (size_t h = 0; h < heads; ++h) {
    for (size_t t = 0; t < sinks; ++t) {
      LoadElements(dtype,
                   source + (h * head_stride + t * channels) * DTypeSize(dtype),
                   absl::MakeSpan(token));
      const uint16_t scale = Int8Scale::For(token);
      sink_scales.push_back(scale);
      for (const float value : token) {
        sink_codes.push_back(Int8Scale::Quantize(value, scale));
      }
    }
  }
}

void BlockContent::DecodeSink(size_t sink, size_t channels,
                              float* values) const {
  for (size_t c = 0; c < channels; ++c) {
    values[c] = Int8Scale::Dequantize(sink_codes[sink * channels + c],
                                      sink_scales[sink]);
  }
}

}  // namespace kvcompress::coding
