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
#include "kvcompress/rope.h"

namespace kvcompress::coding {

// Turns per token, times 2^64, of the first channel pair: 1 / (2 pi).
inline constexpr uint64_t kFirstIncrement = 0x28be60db9391054a;

struct Rotation {
  // Pairs in a row whose increments are multiplied by multiplier / 2^31.
  struct Run {
    uint16_t length = 0;
    uint32_t multiplier = 0;
    bool operator==(const Run&) const = default;
  };

  // Each pair rotates at this multiple, over 2^64, of the one before it.
  uint64_t ratio = 0;
  // Pairs are (2i, 2i+1); else (i, i + half the rotated channels).
  bool interleaved = false;

  // What follows is another form of payload where it is not as here.
  uint16_t first = 0;     // channel of a head that is rotated
  uint16_t pairs = 0;     // so many pairs are rotated; 0: all channels are
  uint8_t shift = 0;      // rotated channels are coded 2^shift times finer
  std::vector<Run> runs;  // of the first pairs; others are not multiplied

  bool operator==(const Rotation&) const = default;
  bool IsPlain() const {
    return first == 0 && pairs == 0 && shift == 0 && runs.empty();
  }
  // That are rotated, of a head of so many channels.
  size_t Pairs(size_t channels) const {
    return pairs == 0 ? channels / 2 : pairs;
  }
};

inline constexpr int kMultiplierBits = 31;
inline constexpr size_t kMaxRuns = 255;
inline constexpr int kMaxRotationShift = 8;

// The ratio of `theta`, at least 1, for `pairs` channel pairs:
// theta^(-1/pairs).
uint64_t RatioOf(double theta, size_t pairs);

// Turns per token, times 2^64, of each pair.
std::vector<uint64_t> Increments(const Rotation& rotation, size_t pairs);

// Rotates rows [tokens, channels], inversely if `back`, else as a model does.
// `table` has those of kernels::RowKernels::rotate.
void Rotate(const Rotation& rotation, const float* table, bool back,
            size_t channels, size_t tokens, float* values);

// Rotates the tokens of a tensor, and keeps the sines and cosines it has found
// for those of its heads that follow. Not thread safe.
class Rotator {
 public:
  // `values` is [tokens, channels], from the token `first` on.
  void Rotate(const Rotation& rotation, bool back, size_t channels,
              uint64_t first, size_t tokens, float* values);

  // The table of kernels::RowKernels::rotate for so many tokens from `first`
  // on. Valid until the next call.
  const float* TableOf(const Rotation& rotation, size_t channels,
                       uint64_t first, size_t tokens);

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

  Rotation rotation_;
  std::vector<uint64_t> increments_;
  std::vector<float> kept_;  // those that were asked for, and all before
  std::vector<float> last_;  // where there is no space to keep it
  uint64_t last_first_ = 0;
};

// DetectRotation looks at so many heads and tokens, the first ones; more change
// nothing.
inline constexpr uint64_t kRotationHeads = 4;
inline constexpr uint64_t kRotationTokens = 129;

// The rotations that keys may have.
struct RotationCandidates {
  struct Candidate {
    Rotation rotation;
    RopeEmbedding embedding;
  };
  std::vector<Candidate> list;
  bool declared = false;
  // Where keys are checked against what is declared: those of the bases in
  // common use.
  std::vector<Candidate> usual;
  // What the steps of the tensor are multiplied with: below 1 where all of it
  // is the rotated part of a latent. Candidate::rotation has what a part has.
  double step_factor = 1;
};

struct FoundRotation {
  Rotation rotation;
  RopeFinding finding;
  // The part of the sample's energy that undoing it moves into the mean over
  // tokens.
  double gain = 0;
};

// The rotation that most likely made the keys `values` [heads, tokens,
// channels], of which a sample is looked at: the candidate of the list that
// leaves the largest mean over tokens. Nothing when none beats no rotation
// clearly. Anything when the checkpoint stops.
std::optional<FoundRotation> DetectRotation(
    const float* values, size_t heads, size_t tokens, size_t channels,
    const RotationCandidates& candidates, Checkpoint* checkpoint = nullptr);

// A base in common use that explains the keys clearly better than `found`,
// which DetectRotation returned for what is declared. Nothing where none does,
// or `candidates` has none to compare with.
std::optional<double> LikelierBase(const float* values, size_t heads,
                                   size_t tokens, size_t channels,
                                   const RotationCandidates& candidates,
                                   const std::optional<FoundRotation>& found,
                                   Checkpoint* checkpoint = nullptr);

}  // namespace kvcompress::coding

#endif  // KVCOMPRESS_QUANTIZATION_ROPE_H_
