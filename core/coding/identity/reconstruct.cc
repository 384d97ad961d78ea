// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "coding/identity/reconstruct.h"

#include <algorithm>
#include <bit>

#include "quantization/norms.h"

namespace kvcompress::coding {
namespace {

// 2^-power, exactly.
float InversePowerOfTwo(int power) {
  return std::bit_cast<float>(static_cast<uint32_t>(127 - power) << 23);
}

}  // namespace

Reconstructor::Reconstructor(const TensorHeader& header,
                             const Geometry& geometry, const Block& block,
                             const BlockContent& content, Rotator* rotator)
    : header_(header),
      block_(block),
      content_(content),
      channels_(geometry.channels()),
      sinks_(header.Int8Sinks(block)),
      runs_(RunsOf(header, geometry, block)),
      norms_(content.norms.size()) {
  std::transform(content.norms.begin(), content.norms.end(), norms_.begin(),
                 NormOf);
  if (header.rotation) {
    rotation_table_ = rotator->TableOf(*header.rotation, channels_,
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
        {.means = &content_.means[head * channels_],
         .shift = shift,
         .unit = header_.step * InversePowerOfTwo(shift + 3),
         .norms = header_.norms ? &norms_[head * block_.tokens + t] : nullptr},
        row(t));
  });
  if (header_.rotation) {
    Rotate(*header_.rotation,
           rotation_table_ + begin * 2 * header_.rotation->Pairs(channels_),
           false, channels_, end - begin, values);
  }
  for (size_t t = begin; t < sinks; ++t) {
    content_.DecodeSink(head * sinks_ + t, channels_, row(t));
  }
}

}  // namespace kvcompress::coding
