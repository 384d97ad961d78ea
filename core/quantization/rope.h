// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Rotary position embedding (Su et al., arXiv:2104.09864) without libm: phases
// are 64-bit fractions of a turn, sine and cosine come from integers, so that
// every machine has the same bits. Specified in core/FORMAT.md, "ecsq".

#ifndef KVCOMPRESS_QUANTIZATION_ROPE_H_
#define KVCOMPRESS_QUANTIZATION_ROPE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "kvcompress/checkpoint.h"

namespace kvcompress::coding {

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

// Turns per token, times 2^64, of each pair.
std::vector<uint64_t> Increments(uint64_t ratio, size_t pairs);

// Turns the tokens of a tensor, and keeps the sines and cosines it has found
// for those of its heads that follow. Not thread safe.
class Rotator {
 public:
  // `values` is [tokens, 2 * pairs], from the token `first` on. Turns them back
  // or, as a model does, forth.
  void Rotate(const Rotation& rotation, bool back, size_t pairs, uint64_t first,
              size_t tokens, float* values);

  // The table of kernels::RowKernels::rotate for so many tokens from `first`
  // on. Valid until the next call.
  const float* TableOf(uint64_t ratio, size_t pairs, uint64_t first,
                       size_t tokens);

  // The most bytes that it keeps for heads of `tokens` tokens of `channels`
  // channels, of which at most `at_once` are asked for together.
  static uint64_t MaxMemory(uint64_t tokens, uint64_t channels,
                            uint64_t at_once) {
    const uint64_t all =
        std::min<uint64_t>(tokens * channels, kMaxKept) * sizeof(float);
    if (all <= kMaxKept) return std::min<uint64_t>(Grown(all), kMaxKept);
    return kMaxKept + at_once * channels * sizeof(float);
  }

 private:
  // The tokens from the first on are kept, as far as they take this many bytes.
  static constexpr size_t kMaxKept = 4 << 20;
  // What is given for so much, so that it need not grow each time.
  static constexpr size_t Grown(size_t size) { return size + size / 4; }

  uint64_t ratio_ = 0;
  size_t pairs_ = 0;
  std::vector<float> kept_;  // those that were asked for, and all before
  std::vector<float> last_;  // where there is no room to keep it
  uint64_t last_first_ = 0;
};

// DetectRotation looks at so many heads and tokens, the first ones; more change
// nothing.
inline constexpr uint64_t kRotationHeads = 4;
inline constexpr uint64_t kRotationTokens = 129;

// The rotation that most likely made the keys `values` [heads, tokens,
// channels], of which a sample is looked at: the candidate that leaves the
// largest mean over tokens. Nothing when none beats no rotation clearly, or
// channels are odd. `theta` is the only candidate when it is set; 0 is none.
// Anything when the checkpoint stops.
std::optional<Rotation> DetectRotation(const float* values, size_t heads,
                                       size_t tokens, size_t channels,
                                       std::optional<double> theta,
                                       Checkpoint* checkpoint = nullptr);

// Detects the rotation of keys [heads, tokens, channels] and undoes it in
// place; of some of them when the checkpoint stops.
std::optional<Rotation> RemoveRotation(size_t heads, size_t tokens,
                                       size_t channels,
                                       std::optional<double> theta,
                                       Rotator* rotator, float* values,
                                       Checkpoint* checkpoint = nullptr);

}  // namespace kvcompress::coding

#endif  // KVCOMPRESS_QUANTIZATION_ROPE_H_
