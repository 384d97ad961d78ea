// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "coding/identity/reconstruct.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/kernels.h"
#include "kvcompress/dtype.h"

namespace kvcompress::coding {
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

Reconstructor::Reconstructor(const TensorHeader& header,
                             const Geometry& geometry, const Block& block,
                             const BlockContent& content, Rotator* rotator)
    : header_(header),
      block_(block),
      content_(content),
      channels_(geometry.channels()),
      sinks_(header.Int8Sinks(block)),
      runs_(RunsOf(header, geometry, block, sinks_)),
      norms_(content.side.norms.size()) {
  std::transform(content.side.norms.begin(), content.side.norms.end(),
                 norms_.begin(), NormOf);
  if (header.rotation) {
    rotation_table_ = rotator->TableOf(header.rotation->ratio, channels_ / 2,
                                       block.first_token, block.tokens);
  }
}

void Reconstructor::Restore(size_t head, size_t begin, size_t end,
                            Dequantize dequantize, float* values) const {
  const auto row = [&](size_t t) { return values + (t - begin) * channels_; };
  const size_t sinks = std::max(begin, std::min(end, sinks_));
  std::fill(values, row(sinks), 0.0f);
  ForEachRun(runs_, begin, end, [&](size_t t, size_t run_end, int shift) {
    dequantize(
        t, run_end,
        {.means = &content_.side.means[head * channels_],
         .shift = shift,
         .unit = header_.step * InversePowerOfTwo(shift + 3),
         .norms = header_.norms ? &norms_[head * block_.tokens + t] : nullptr},
        row(t));
  });
  if (header_.rotation) {
    kernels::Active().rows.rotate(
        rotation_table_ + begin * channels_,
        {.tokens = end - begin,
         .pairs = channels_ / 2,
         .interleaved = header_.rotation->interleaved},
        values);
  }
  for (size_t t = begin; t < sinks; ++t) {
    const size_t sink = head * sinks_ + t;
    for (size_t c = 0; c < channels_; ++c) {
      row(t)[c] =
          Int8Scale::Dequantize(content_.sink_codes[sink * channels_ + c],
                                content_.sink_scales[sink]);
    }
  }
}

}  // namespace kvcompress::coding
