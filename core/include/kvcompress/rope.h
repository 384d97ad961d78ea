// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Rotary position embedding as models have it (Su et al., arXiv:2104.09864):
// what a caller may declare of it, and what an encoder says of a tensor.

#ifndef KVCOMPRESS_ROPE_H_
#define KVCOMPRESS_ROPE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"

namespace kvcompress {

// How frequencies differ from those of the base, for longer contexts. Functions
// of the same names in modeling_rope_utils.py of Hugging Face's transformers
// are what this follows.
struct RopeScaling {
  enum class Type {
    kNone,
    kLinear,  // all divided by `factor`
    kLlama3,  // low ones divided, by wavelength (Llama 3.1)
    kYarn,    // the later pairs divided (Peng et al., arXiv:2309.00071)
  };
  Type type = Type::kNone;
  double factor = 1;
  // Positions that the model was trained with at first. kLlama3 and kYarn.
  double original_positions = 0;
  double low_frequency_factor = 1;   // kLlama3
  double high_frequency_factor = 4;  // kLlama3
  double beta_fast = 32;             // kYarn
  double beta_slow = 1;              // kYarn
  bool truncate = true;  // kYarn: the ramp begins and ends at whole pairs
};

struct RopeEmbedding {
  enum class Pairs {
    kUnknown,      // either of these
    kHalves,       // i and i + half the rotated channels (rotate-half)
    kInterleaved,  // 2 i and 2 i + 1 (GPT-J)
  };
  // Base of the frequencies: pair p of n rotates by theta^(-p/n) per token.
  double theta = 10000;
  Pairs pairs = Pairs::kUnknown;
  // Channels before these are not rotated: with MLA, the latent.
  uint32_t first_channel = 0;
  // Of a head, even; the channels after them are not rotated. 0: all.
  uint32_t rotary_channels = 0;
  RopeScaling scaling;
};

inline constexpr uint64_t kMaxRopeEmbeddings = 16;
inline constexpr uint64_t kMaxRopeLayers = 65536;

struct RopeParameters {
  std::vector<RopeEmbedding> embeddings;
  // Of layer i: 0 where it has none, else n for embeddings[n - 1]. Layers that
  // are not listed, and tensors without a layer, have any of the embeddings.
  std::vector<uint32_t> layers;
};

// INVALID_ARGUMENT, with the field options.rope, for what cannot be.
absl::Status ValidateRope(const RopeParameters& rope);

// What the frequencies of the base are multiplied with, of each of `pairs`
// pairs: 0 to 1.
std::vector<double> RopeMultipliers(const RopeEmbedding& embedding,
                                    size_t pairs);

// The rotation that an encoder removed from a tensor.
struct RopeFinding {
  RopeEmbedding embedding;  // with `pairs` known
  bool declared = false;    // else found out from the values
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_ROPE_H_
