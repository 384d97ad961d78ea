// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/ecsq/reconstruct.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/kernels.h"
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
                 Rotator* rotator, float* values) {
  const size_t channels = geometry.channels();
  const size_t int8_sinks = header.Int8Sinks(block);
  std::vector<float> norms(content.side.norms.size());
  std::transform(content.side.norms.begin(), content.side.norms.end(),
                 norms.begin(), NormOf);
  for (size_t h = 0; h < block.heads; ++h) {
    float* const head = values + h * block.tokens * channels;
    std::fill_n(head, int8_sinks * channels, 0.0f);
    ForEachRun(header, geometry, block, int8_sinks,
               [&](size_t t, size_t end, int shift) {
                 const size_t row = h * block.tokens + t;
                 kernels::Active().rows.dequantize(
                     &content.quanta[row * channels], end - t, channels,
                     {.means = &content.side.means[h * channels],
                      .shift = shift,
                      .unit = header.step * InversePowerOfTwo(shift + 3),
                      .norms = header.norms ? &norms[row] : nullptr},
                     head + t * channels);
                 return true;
               });
    if (header.rotation) {
      rotator->Turn(*header.rotation, false, channels / 2, block.first_token,
                    block.tokens, head);
    }
    for (size_t t = 0; t < int8_sinks; ++t) {
      const size_t sink = h * int8_sinks + t;
      for (size_t c = 0; c < channels; ++c) {
        head[t * channels + c] = Int8Scale::Dequantize(
            content.sink_codes[sink * channels + c], content.sink_scales[sink]);
      }
    }
  }
}

}  // namespace kvcompress::ecsq
