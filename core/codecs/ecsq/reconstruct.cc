// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/ecsq/reconstruct.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "kvcompress/dtype.h"

namespace kvcompress::ecsq {
namespace {

// 2^-power, exactly.
float InversePowerOfTwo(int power) {
  return std::bit_cast<float>(static_cast<uint32_t>(127 - power) << 23);
}

}  // namespace

uint16_t Int8Scale::For(absl::Span<const float> values) {
  float largest = 0;
  for (const float value : values) {
    largest = std::max(largest, std::abs(value));
  }
  const uint32_t bits = std::bit_cast<uint32_t>(largest / 127.0f);
  return static_cast<uint16_t>((bits + 0xffff) >> 16);
}

int8_t Int8Scale::Quantize(float value, uint16_t bits) {
  if (bits == 0) return 0;
  const float code = std::round(value / BFloat16ToFloat(bits));
  return static_cast<int8_t>(std::clamp(code, -127.0f, 127.0f));
}

float Int8Scale::Dequantize(int8_t code, uint16_t bits) {
  return static_cast<float>(code) * BFloat16ToFloat(bits);
}

void Reconstruct(const TensorHeader& header, const Geometry& geometry,
                 const Block& block, const BlockContent& content,
                 absl::Span<float> values) {
  const size_t channels = geometry.channels();
  const size_t pairs = channels / 2;
  const size_t int8_sinks = header.Int8Sinks(block);
  std::vector<SinCos> rotation;
  if (header.rotation) {
    rotation = RotationTable(header.rotation->ratio, pairs, block.first_token,
                             block.tokens);
  }
  for (size_t h = 0; h < block.heads; ++h) {
    const int32_t* means = &content.side.means[h * channels];
    for (size_t t = 0; t < block.tokens; ++t) {
      const size_t row = h * block.tokens + t;
      float* out = &values[row * channels];
      if (t < int8_sinks) {
        const size_t sink = h * int8_sinks + t;
        for (size_t c = 0; c < channels; ++c) {
          out[c] =
              Int8Scale::Dequantize(content.sink_codes[sink * channels + c],
                                    content.sink_scales[sink]);
        }
        continue;
      }
      const int shift =
          header.ShiftOf(block.first_token + t, geometry.tokens());
      const float unit = header.step * InversePowerOfTwo(shift + 3);
      const int32_t* quanta = &content.quanta[row * channels];
      for (size_t c = 0; c < channels; ++c) {
        const int32_t eighths = 8 * quanta[c] + means[c] * (1 << shift);
        out[c] = static_cast<float>(eighths) * unit;
      }
      if (header.norms) {
        const float norm = NormOf(content.side.norms[row]);
        for (size_t c = 0; c < channels; ++c) out[c] *= norm;
      }
      if (header.rotation) {
        Rotate(&rotation[t * pairs], header.rotation->interleaved, channels,
               out);
      }
    }
  }
}

}  // namespace kvcompress::ecsq
