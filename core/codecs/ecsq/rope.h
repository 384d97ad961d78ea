// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Rotary position embedding (Su et al., arXiv:2104.09864) without libm: phases
// are 64-bit fractions of a turn, sine and cosine come from integers, so that
// every machine has the same bits. Specified in core/FORMAT.md, "ecsq".

#ifndef KVCOMPRESS_CODECS_ECSQ_ROPE_H_
#define KVCOMPRESS_CODECS_ECSQ_ROPE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace kvcompress::ecsq {

// Turns per token, times 2^64, of the first channel pair: 1 / (2 pi).
inline constexpr uint64_t kFirstIncrement = 0x28be60db9391054a;

struct Rotation {
  // Each pair turns at this multiple, over 2^64, of the one before it.
  uint64_t ratio = 0;
  // Pairs are (2i, 2i+1); else (i, i + half the channels).
  bool interleaved = false;
};

// The ratio of `theta`, at least 1, for `pairs` channel pairs:
// theta^(-1/pairs).
uint64_t RatioOf(double theta, size_t pairs);

struct SinCos {
  float cos;
  float sin;
};
SinCos SinCosOf(uint64_t phase);

// Sines and cosines of the tokens first .. first + tokens - 1: pair i of token
// t at [t * pairs + i].
std::vector<SinCos> RotationTable(uint64_t ratio, size_t pairs, uint64_t first,
                                  size_t tokens);

// Turns every token of one head back in place, from what a model stores to what
// it rotated.
void Unrotate(const std::vector<SinCos>& table, bool interleaved,
              size_t channels, size_t tokens, float* values);

// Turns one token, whose sines and cosines are at `row`: what Unrotate undoes.
void Rotate(const SinCos* row, bool interleaved, size_t channels,
            float* values);

// The rotation that most likely made the keys `values` [heads, tokens,
// channels], of which a sample is looked at: the candidate that leaves the
// largest mean over tokens. Nothing when none beats no rotation clearly, or
// channels are odd. `theta` is the only candidate when it is set; 0 is none.
std::optional<Rotation> DetectRotation(const float* values, size_t heads,
                                       size_t tokens, size_t channels,
                                       std::optional<double> theta);

// Detects the rotation of keys [heads, tokens, channels] and undoes it in
// place.
std::optional<Rotation> RemoveRotation(size_t heads, size_t tokens,
                                       size_t channels,
                                       std::optional<double> theta,
                                       float* values);

}  // namespace kvcompress::ecsq

#endif  // KVCOMPRESS_CODECS_ECSQ_ROPE_H_
